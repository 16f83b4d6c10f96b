"""Values of an export that cannot be used: what is bridged, what is cut out, and what is said."""

from pathlib import Path

import numpy as np
import pytest

from tests.trainers.control.logged import ROWS, as_csv, complaint, expected, log, read, sample
from trainers.control.demonstrations.account import Dropped
from trainers.control.demonstrations.settings import Conversion


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "export.csv"


def test_missing_stretches_up_to_three_samples_are_bridged(file: Path) -> None:
    columns = log(["a"])
    for row in (10, 11, 12, 20, 21, 22, 23):
        columns["T"][row] = None
    columns["T"][11], columns["T"][12] = "Bad Input", 1e39  # more than single precision holds
    data, account = read(as_csv(file, columns))
    assert data.ids.tolist() == ["a.1", "a.2"]
    assert data.length.tolist() == [20, 16]
    between = columns["T"][9] + 0.25 * np.arange(1, 4) * (columns["T"][13] - columns["T"][9])
    assert data.x[0, 10:13, 0].tobytes() == between.astype("f4").tobytes()
    assert [(d.reason, d.rows) for d in account.dropped] == [("values are missing for too long", 4)]
    assert account.origins == ("a", "a")


def test_absent_rows_are_bridged_or_cut_alike(file: Path) -> None:
    columns = log(["a"])
    kept = [i for i in range(ROWS) if i not in (10, 11, 12, 20, 21, 22, 23)]
    data, account = read(as_csv(file, {k: [v[i] for i in kept] for k, v in columns.items()}))
    assert data.length.tolist() == [20, 16]
    assert sample(data, 1).tobytes() == expected(columns, range(24, ROWS)).tobytes()
    assert data.u[0, 9:13, 0].tolist() == [np.float32(columns["m"][9])] * 4
    assert account.dropped == ()


def test_a_frozen_sensor_is_cut_out(file: Path) -> None:
    columns = log()
    columns["T"][10:19] = [columns["T"][10]] * 9
    columns["T"][60:68] = [columns["T"][60]] * 8  # no longer than allowed
    data, account = read(as_csv(file, columns))
    assert data.ids.tolist() == ["a.1", "a.2", "b"]
    assert data.length.tolist() == [10, 21, 40]
    assert account.dropped == (Dropped("a sensor is frozen", 9, "the first is row 12 of 'a'"),)


def test_a_plant_at_rest_and_a_set_point_are_not_frozen(file: Path) -> None:
    columns = log()
    for name in ("T", "CA", "m"):
        columns[name][10:30] = [columns[name][10]] * 20
    _, account = read(as_csv(file, columns))
    assert (account.kept, account.notes) == (80, ())
    columns = log()
    columns["T"] = [90.0] * 20 + [86.0] * 60
    _, account = read(as_csv(file, columns))
    assert account.kept == 80
    assert account.notes == (
        "observation 'T' stands still in 100% of its rows and is taken for one that moves in "
        "steps, as a set-point does; frozen stretches of it are not looked for",
    )
    columns["T"] = [90.0] * 80
    _, account = read(as_csv(file, columns))
    assert account.notes[0].startswith("observation 'T' never changes within an episode")


def test_actions_outside_limits_cut_and_sensors_outside_are_missing(file: Path) -> None:
    columns = log(["a"])
    columns["m"][10], columns["m"][11] = 1.5, None
    columns["T"][20] = -999.0
    data, account = read(as_csv(file, columns), limits={"m": (0.0, 1.0), "T": (0.0, 200.0)})
    assert data.length.tolist() == [10, 28]  # row 11 has no action of its own: 1.5 still held
    assert [(d.reason, d.rows) for d in account.dropped] == [("an action is outside its limits", 2)]
    assert data.x[1, 8, 0] == np.float32((columns["T"][19] + columns["T"][21]) / 2)
    assert "bridged: 1 cell(s) of 'T' without a usable value" in account.notes


def test_an_action_between_samples_cuts_too(file: Path) -> None:
    columns = log(["a"])
    columns["m"][13] = 2.0  # at 130 s; samples are at 120 and 140 s
    data, account = read(
        as_csv(file, columns), seconds=20.0, limits={"m": (0.0, 1.0)}
    )  # fmt: skip
    assert data.length.tolist() == [6, 13]
    assert account.dropped[0].rows == 2
    assert sample(data, 1).tobytes() == expected(columns, range(14, ROWS, 2)).tobytes()


def test_a_brief_action_that_a_sample_would_take_cuts(file: Path) -> None:
    columns = log(["a"])
    columns["t"][19:21] = [199.95, 200.05]
    columns["m"][19] = 7.0  # within the slack of the sample at 200 s
    data, account = read(as_csv(file, columns), limits={"m": (0.0, 1.0)})
    assert data.u.max() <= 1.0
    assert data.length.tolist() == [20, 19]
    assert [(d.reason, d.rows) for d in account.dropped] == [("an action is outside its limits", 2)]


@pytest.mark.parametrize(
    ("written", "limits", "said"),
    [
        ("kelvin", (60.0, 120.0), "another unit: units: {'T': {scale: 1, offset: -273.15}}"),
        ("fahrenheit", (60.0, 120.0), "{scale: 0.555556, offset: -17.7778}"),
        ("nonsense", (60.0, 120.0), "convert it with units, or correct the limits"),
    ],
)
def test_other_units(file: Path, written: str, limits: tuple[float, float], said: str) -> None:
    scale, offset = {"kelvin": (1, 273.15), "fahrenheit": (1.8, 32)}.get(written, (1e9, 0))
    columns = log()
    columns["T"] = [scale * t + offset for t in columns["T"]]
    text = complaint(as_csv(file, columns), limits={"T": limits})
    assert "100% of column 'T' is outside its limits [60, 120]" in text
    assert said in text


def test_a_suggested_conversion_builds_on_the_one_given(file: Path) -> None:
    columns = log()
    columns["T"] = [10 * (1.8 * t + 32) - 5 for t in columns["T"]]
    given = {"T": Conversion(scale=0.1, offset=0.5)}
    text = complaint(as_csv(file, columns), limits={"T": (60.0, 120.0)}, units=given)
    assert "{scale: 0.0555556, offset: -17.5}" in text


def test_nothing_is_lost_whatever_is_wrong(file: Path) -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        columns = log(["a", "b", "c"])
        columns["t"] = [t + rng.uniform(0, 9) for t in columns["t"]]
        for name in ("t", "T", "CA", "m", "batch"):
            for row in rng.integers(0, 120, size=3):
                columns[name][row] = None
        columns["CA"][30:45] = [columns["CA"][30]] * 15
        columns["m"][int(rng.integers(120))] = 7.0
        order = rng.permutation(120)[: rng.integers(60, 120)]
        table = {k: [v[i] for i in order] for k, v in columns.items()}
        limits = {"m": (0.0, 1.0), "T": (87.0, 100.0)}
        _, account = read(as_csv(file, table), limits=limits, shortest=2)  # adds up, see `read`
        assert account.rows == len(order)
        assert all(d.rows > 0 for d in account.dropped)
