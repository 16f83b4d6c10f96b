"""An export read by the settings' own defaults, with every row of it accounted for."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from trainers.control.demonstrations.account import Account
from trainers.control.demonstrations.open import open_demonstrations
from trainers.control.demonstrations.settings import DemonstrationSettings
from trainers.control.trajectories import Trajectories

Table = dict[str, list[Any]]


def export(n: int = 60, episodes: int = 2) -> Table:
    """Rows every 10 s; the second observation is twice the first one."""
    rng = np.random.default_rng(0)
    t = np.round(rng.normal(88, 1, n * episodes), 3)
    return {
        "time": [i * 10.0 for _ in range(episodes) for i in range(n)],
        "batch": [f"b{e}" for e in range(episodes) for _ in range(n)],
        "T": t.tolist(),
        "twice": (2 * t).tolist(),
        "m": np.round(rng.uniform(0, 1, n * episodes), 3).tolist(),
    }


def written(folder: Path, table: Table, name: str = "export.csv") -> Path:
    path = folder / name
    if path.suffix == ".parquet":
        parquet.write_table(pa.table(table), path)
        return path
    rows = [
        ",".join("" if v is None else str(v) for v in row)
        for row in zip(*table.values(), strict=True)
    ]
    path.write_text("\n".join([",".join(table), *rows]) + "\n")
    return path


def opened(path: Path, **changes: Any) -> tuple[Trajectories, Account]:
    told: dict[str, Any] = {
        "observations": ("T", "twice"), "actions": ("m",), "time": "time", "trajectory": "batch",
        "seconds": 10.0, **changes,
    }  # fmt: skip
    found = open_demonstrations(DemonstrationSettings(path=str(path), **told))
    account = found[1]
    assert account.rows == account.kept + sum(d.rows for d in account.dropped)
    return found


def reasons(account: Account) -> dict[str, int]:
    return {d.reason: d.rows for d in account.dropped}


@pytest.mark.parametrize("name", ["export.csv", "export.parquet"])
def test_a_clean_export_is_read_as_it_stands(tmp_path: Path, name: str) -> None:
    table = export()
    data, account = opened(written(tmp_path, table, name))
    assert (data.length.tolist(), data.ids.tolist()) == ([60, 60], ["b0", "b1"])
    np.testing.assert_array_equal(data.x[1, :, 0], np.array(table["T"][60:], np.float32))
    np.testing.assert_array_equal(data.u[0, :, 0], np.array(table["m"][:60], np.float32))
    assert (account.rows, account.kept, account.dropped) == (120, 120, ())


def test_gaps_end_episodes_and_units_are_converted(tmp_path: Path) -> None:
    table = export(episodes=1)
    table["time"] = [t + (5000.0 if i >= 25 else 0.0) for i, t in enumerate(table["time"])]
    path = written(tmp_path, table)
    kelvin = {"T": {"scale": 1.0, "offset": 273.15}}
    data, _ = opened(path, trajectory=None, gap=600.0, units=kelvin)
    assert data.length.tolist() == [25, 35]
    np.testing.assert_allclose(data.x[0, :25, 0], np.add(table["T"][:25], 273.15), rtol=1e-6)


def test_uneven_rows_are_interpolated_and_actions_are_held(tmp_path: Path) -> None:
    table: Table = {
        "time": [i * 7.0 for i in range(40)], "batch": ["b"] * 40,
        "T": [80 + i * 0.7 for i in range(40)], "twice": [160 + i * 1.4 for i in range(40)],
        "m": [i / 40 for i in range(40)],
    }  # fmt: skip
    data, account = opened(written(tmp_path, table))
    at = 10.0 * np.arange(int(data.length[0]))
    np.testing.assert_allclose(data.x[0, :, 0], 80 + at / 10, rtol=1e-6)  # a straight line
    np.testing.assert_allclose(data.u[0, :, 0], (at // 7) / 40, atol=1e-6)
    assert any("resampled" in note for note in account.notes)


def test_short_holes_are_bridged_and_long_ones_cut(tmp_path: Path) -> None:
    table = export(episodes=1)
    table["T"][5:7] = [None, None]
    table["T"][30:40] = [None] * 10
    data, account = opened(written(tmp_path, table))
    assert data.length.tolist() == [30, 20]
    line = np.interp([5, 6], [4, 7], [table["T"][4], table["T"][7]])
    np.testing.assert_allclose(data.x[0, 5:7, 0], line, rtol=1e-6)
    assert reasons(account) == {"values are missing for too long": 10}


def test_a_frozen_sensor_is_cut_out(tmp_path: Path) -> None:
    table = export(n=120, episodes=1)
    table["T"][40:80] = [88.0] * 40
    data, account = opened(written(tmp_path, table))
    assert data.length.tolist() == [40, 40]
    assert reasons(account) == {"a sensor is frozen": 40}


def test_an_action_outside_its_limits_cuts_the_episode(tmp_path: Path) -> None:
    table = export(episodes=1)
    table["m"][20] = 1.5
    data, account = opened(written(tmp_path, table), limits={"m": (0.0, 1.0)})
    assert data.length.tolist() == [20, 39]
    assert reasons(account) == {"an action is outside its limits": 1}


def test_rows_out_of_order_are_sorted_and_repeated_ones_dropped(tmp_path: Path) -> None:
    table = export(episodes=1)
    clean, _ = opened(written(tmp_path, table))
    order = [3, 1, 2, 0, *range(4, 60), 10]
    shuffled = {name: [column[i] for i in order] for name, column in table.items()}
    data, account = opened(written(tmp_path, shuffled, "shuffled.csv"))
    np.testing.assert_array_equal(data.x, clean.x)
    assert reasons(account) == {"the row repeats another": 1}
