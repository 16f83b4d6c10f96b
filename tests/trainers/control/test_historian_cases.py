"""A historian's export: what is read, what is dropped and why, and what is said of bad files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from cluster.errors import UsageError
from trainers.control.demonstrations import parquet
from trainers.control.demonstrations.account import Account, Dropped
from trainers.control.demonstrations.episodes import numbered
from trainers.control.demonstrations.open import open_demonstrations
from trainers.control.demonstrations.settings import Conversion, DemonstrationSettings
from trainers.control.trajectories import Trajectories, padded

ROWS = 40
ROLES: dict[str, Any] = {
    "observations": ("T", "CA"), "actions": ("m",), "time": "t", "trajectory": "batch",
    "seconds": 10.0, "shortest": 5, "frozen": 8, "missing": 3,
}  # fmt: skip


def log(batches: Sequence[str] = ("a", "b")) -> dict[str, list[Any]]:
    """Columns of a plant that was logged without fault: 40 rows a batch, 10 s apart."""
    rng = np.random.default_rng(1)
    n = ROWS * len(batches)
    return {
        "batch": [batch for batch in batches for _ in range(ROWS)],
        "t": [10.0 * i for _ in batches for i in range(ROWS)],
        "T": (88 + rng.normal(size=n)).tolist(),
        "CA": (1.1 + 0.1 * rng.normal(size=n)).tolist(),
        "m": rng.uniform(size=n).tolist(),
    }


def as_csv(path: Path, columns: Mapping[str, Sequence[Any]]) -> Path:
    lines = [columns.keys(), *zip(*columns.values(), strict=True)]
    cells = [["" if cell is None else str(cell) for cell in line] for line in lines]
    path.write_text("".join(",".join(line) + "\n" for line in cells))
    return path


def read(path: Path, **changes: Any) -> tuple[Trajectories, Account]:
    data, account = open_demonstrations(
        DemonstrationSettings(**{**ROLES, "path": str(path), **changes})
    )
    assert account.kept + sum(d.rows for d in account.dropped) == account.rows
    assert account.samples == data.samples
    assert account.trajectories == len(data)
    return data, account


def complaint(path: Path, **changes: Any) -> str:
    with pytest.raises(UsageError) as caught:
        read(path, **changes)
    return str(caught.value)


def expected(columns: Mapping[str, Sequence[Any]], rows: Sequence[int]) -> np.ndarray:
    return np.stack([np.array(columns[n])[list(rows)] for n in ("T", "CA", "m")], 1).astype("f4")


def sample(data: Trajectories, i: int) -> np.ndarray:
    return np.concatenate([data.x[i], data.u[i]], axis=1)[: data.length[i]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "export.csv"


def test_an_even_log_is_read_as_it_is(file: Path) -> None:
    columns = log()
    data, account = read(as_csv(file, columns))
    assert data.ids.tolist() == ["a", "b"]
    assert sample(data, 0).tobytes() == expected(columns, range(ROWS)).tobytes()
    assert sample(data, 1).tobytes() == expected(columns, range(ROWS, 2 * ROWS)).tobytes()
    assert account == Account("export.csv", 80, 80, 2, ("a", "b"), 80)


def test_csv_equals_parquet(file: Path, tmp_path: Path) -> None:
    columns = log()
    columns["T"][7] = None
    for row in range(50, 60):
        columns["CA"][row] = None
    pq.write_table(pa.table(columns), tmp_path / "export.parquet")
    one, said = read(as_csv(file, columns))
    two, again = read(tmp_path / "export.parquet")
    assert one.ids.tolist() == two.ids.tolist() == ["a", "b.1", "b.2"]
    assert (one.x.tobytes(), one.u.tobytes()) == (two.x.tobytes(), two.u.tobytes())
    assert [(d.reason, d.rows) for d in said.dropped] == [(d.reason, d.rows) for d in again.dropped]
    assert said.dropped[0].first == "the first is row 52 of 'b'"  # the header is row 1
    assert again.dropped[0].first == "the first is row 51 of 'b'"
    assert said.notes == again.notes == ("bridged: 1 cell(s) of 'T' without a usable value",)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_timestamps_delimiters_and_units(file: Path, delimiter: str) -> None:
    columns = log()
    text = {
        **columns,
        "t": [f"2026-03-01T12:{int(t) // 60:02d}:{int(t) % 60:02d}.2500000Z" for t in columns["t"]],
        "m": [100 * m for m in columns["m"]],
        "comment": ["ok"] * 80,
    }
    plain, _ = read(as_csv(file, {**columns, "m": [0.01 * (100 * m) for m in columns["m"]]}))
    as_csv(file, text)
    file.write_text("\ufeff" + file.read_text().replace(",", delimiter))
    data, _ = read(file, units={"m": Conversion(scale=0.01)})
    assert (data.x.tobytes(), data.u.tobytes()) == (plain.x.tobytes(), plain.u.tobytes())


def test_episodes_by_gap(file: Path) -> None:
    columns = log()
    columns["t"] = [t + (5000 if i >= ROWS else 0) for i, t in enumerate(columns["t"])]
    data, account = read(as_csv(file, columns), trajectory=None, gap=600.0)
    assert data.ids.tolist() == ["1", "2"]
    assert (account.episodes, account.kept) == (2, 80)
    assert sample(data, 1).tobytes() == expected(columns, range(ROWS, 80)).tobytes()


def test_a_wrong_year_needs_no_memory(file: Path) -> None:
    columns = log()
    columns["t"][39] = 1e12
    data, account = read(as_csv(file, columns))
    assert data.length.tolist() == [39, 40]
    assert account.dropped == (
        Dropped(
            "what is left between cuts is too short", 1, "the first is row 41 of 'a'"
        ),
    )  # fmt: skip


def test_irregular_rows_are_interpolated_and_actions_hold(file: Path) -> None:
    t = [0.0, 4.0, 10.0, 24.0, 26.0, 30.05, 49.95]
    columns: dict[str, list[Any]] = {
        "batch": ["a"] * 7,
        "t": t,
        "T": [2 * s for s in t],
        "CA": [1 - s for s in t],
    }
    data, account = read(
        as_csv(file, {**columns, "m": [0, 1, 2, 3, 4, 5, 6]}), shortest=1
    )  # fmt: skip
    # at 20 s between the rows of 10 and 24; 30.05 is on time for 30, 49.95 for 50
    assert data.x[0, :, 0].tolist() == np.array([0, 20, 40, 60.1, 80, 99.9], "f4").tolist()
    assert data.u[0, :, 0].tolist() == [0, 2, 2, 5, 5, 6]
    assert account.kept == 7
    assert "from 2 to 19.9" in account.notes[0]


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
        ("kelvin", (60.0, 120.0), "{scale: 1, offset: -273.15}"),
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


def test_shuffled_rows_are_sorted_and_repeats_dropped(file: Path) -> None:
    columns = log()
    order = [*np.random.default_rng(2).permutation(80).tolist(), 5, 5]
    data, account = read(as_csv(file, {k: [v[i] for i in order] for k, v in columns.items()}))
    first = data.ids.tolist().index("a")
    assert sample(data, first).tobytes() == expected(columns, range(ROWS)).tobytes()
    assert [(d.reason, d.rows) for d in account.dropped] == [("the row repeats another", 2)]
    assert account.notes[0].startswith("sorted by time: ")


def test_same_time_other_values_is_refused(file: Path) -> None:
    columns = log()
    for name in ("t", "CA", "m"):  # all but T
        columns[name][6] = columns[name][5]
    text = complaint(as_csv(file, columns))
    assert "row 7 of 'a' and row 8 of 'a' have the same time but other values" in text
    columns = log()  # two batches told apart by nothing
    assert "39 more pair(s)" in complaint(as_csv(file, columns), trajectory=None, gap=100.0)


def test_rows_without_time_or_name_are_counted(file: Path) -> None:
    columns = log()
    columns["t"][0], columns["batch"][79] = None, None
    data, account = read(as_csv(file, columns))
    assert data.length.tolist() == [39, 39]
    assert [(d.reason, d.rows, d.first) for d in account.dropped] == [
        ("the time is missing", 1, "the first is row 2 of 'a'"),
        ("the trajectory's name is missing", 1, "the first is row 81"),
    ]


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


def test_short_trajectories_and_nothing_left(file: Path) -> None:
    columns = {k: v[:45] for k, v in log().items()}
    data, account = read(as_csv(file, columns), shortest=6)
    assert data.ids.tolist() == ["a"]
    assert account.dropped[0].rows == 5
    assert read(file, shortest=5)[0].length.tolist() == [40, 5]
    text = complaint(file, shortest=41)
    assert "no demonstrations are left" in text
    assert "dropped: 45 rows, what is left between cuts is too short" in text
    assert "rows are 10 s apart in the median" in complaint(file, seconds=1.0)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("\n1,2\n", "begins with an empty line"),
        ("batch,t,T,CA,m\n", "has a header but no rows"),
        ("batch,t,T,CA,m\n\n\n", "has a header but no rows"),
        ("batch,t,T,CA,m\na,0,1\n", "cannot be read as UTF-8 text in columns"),
        ("batch,t,temp,CA,m\na,0,1,1,1\n", "there is no column 'T'"),
        ("batch,t,T,CA,m,m\na,0,1,1,1,1\n", "two columns are named 'm'"),
        ("batch,t,T,Ca,m\na,0,1,1,1\n", "there is no column 'CA'"),
        ("batch,t,T,CA,m\na,0,1,1,1\na,1,hot,1,1\n", "column 'T': row 3 holds 'hot', which is not"),
        ("batch;t;T;CA;m\na;0;1,5;1;1\n", "write decimals with a point"),
        ("batch,t,T,CA,m\na,0,1_0,1,1\n", "'1_0', which is not a number"),
        ("batch,t,T,CA,m\na,noon,1,1,1\n", "column 't': row 2 holds 'noon', which is neither"),
        ("batch,t,T,CA,m\na,01/02/2026 10:00,1,1,1\n", "write all moments alike"),
        (
            "batch,t,T,CA,m\na,2026-01-01 10:00:00,1,1,1\na,2026-01-01T10:01:00Z,1,1,1\n",
            "row 3 holds '2026-01-01T10:01:00Z'",
        ),
    ],
)
def test_text_that_cannot_be_used(file: Path, content: str, said: str) -> None:
    file.write_text(content)
    text = complaint(file)
    assert str(file) in text
    assert said in text


def test_all_columns_at_fault_are_named_at_once(file: Path) -> None:
    file.write_text("batch,t,T,CA,m\na,noon,hot,1,open\n")
    text = complaint(file)
    assert ["'T'" in text, "'m'" in text, "'t'" in text, "'CA'" in text] == [True] * 3 + [False]
    file.write_text("batch,t,TT,CA,mm\n")
    text = complaint(file)
    assert "no column 'T'; did you mean" in text
    assert "'m'; did you mean 'mm'?" in text


def test_files_of_other_kinds(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").write_text("x")
    assert "the ending '.xlsx' is unknown" in complaint(tmp_path / "a.xlsx")
    assert "there is no such file" in complaint(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_bytes("batch,t,T,CA,m\nä,0,1,1,1\n".encode("latin-1"))
    assert "CSV UTF-8" in complaint(tmp_path / "a.csv")
    (tmp_path / "a.pq").write_text("batch,t\n")
    assert "cannot be read as Parquet" in complaint(tmp_path / "a.pq")
    table = pa.table({**log(), "m": [{"a": 1}] * 80})
    pq.write_table(table, tmp_path / "b.pq")
    assert "column 'm': is of type struct" in complaint(tmp_path / "b.pq")


def test_parquet_kinds_of_columns(tmp_path: Path) -> None:
    columns = log()
    plain = pa.table(columns)
    moments = pa.array([int(1e6 * t) for t in columns["t"]], pa.timestamp("us", "Europe/Berlin"))
    other = (
        plain.set_column(1, "t", moments)
        .set_column(0, "batch", plain.column("batch").dictionary_encode())
        .set_column(4, "m", pa.array([m > 0.5 for m in columns["m"]]))
    )
    pq.write_table(plain, tmp_path / "a.parquet")
    pq.write_table(other, tmp_path / "b.parquet")
    one, two = read(tmp_path / "a.parquet")[0], read(tmp_path / "b.parquet")[0]
    assert one.ids.tolist() == two.ids.tolist()
    assert one.x.tobytes() == two.x.tobytes()
    assert two.u[0, :, 0].tolist() == [float(m > 0.5) for m in columns["m"][:ROWS]]


def test_our_own_file_needs_only_its_path(tmp_path: Path) -> None:
    x, length = padded([np.ones((t, 1), np.float32) * t for t in (12, 4, 30)])
    data = Trajectories(("T",), ("m",), 10.0, np.array(["a", "b", "c"]), x, x, length)
    path = tmp_path / "own.parquet"
    parquet.write(path, data)
    found, account = open_demonstrations(DemonstrationSettings(path=str(path)))
    assert found.ids.tolist() == ["a", "c"]
    assert (account.rows, account.kept, account.dropped[0].rows) == (46, 42, 4)
    assert account.dropped[0].first == "the first is 'b'"
    assert len(open_demonstrations(DemonstrationSettings(path=str(path), shortest=30))[0]) == 1
    with pytest.raises(UsageError, match="no demonstrations are left"):
        open_demonstrations(DemonstrationSettings(path=str(path), shortest=31))
    assert "leave out observations, actions" in complaint(path)


def test_another_parquet_needs_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table(log()), tmp_path / "a.parquet")
    with pytest.raises(UsageError, match="also needs observations, actions, time, seconds, traj"):
        open_demonstrations(DemonstrationSettings(path=str(tmp_path / "a.parquet")))
    with pytest.raises(UsageError, match="name one as path"):
        open_demonstrations(DemonstrationSettings())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"path": "a.csv"}, "needs observations, actions, time, seconds, trajectory .* or gap"),
        ({"path": "a.csv", **ROLES, "seconds": None, "trajectory": None}, "seconds, trajectory"),
        ({"path": "a.parquet", "observations": ("T",)}, "needs actions, time, seconds"),
        ({"observations": ("T",)}, "but path is not given"),
        ({"path": "a.csv", **ROLES, "actions": ("T",)}, "'T' is named more than once"),
        ({"path": "a.csv", **ROLES, "limits": {"mm": (0.0, 1.0)}}, "did you mean 'm'"),
        ({"path": "a.csv", **ROLES, "limits": {"m": (1.0, 0.0)}}, "the lower one first"),
        ({"path": "a.csv", **ROLES, "units": {"batch": Conversion()}}, "'batch' is not among"),
        ({"path": "a.csv", **ROLES, "frozen": 4}, r"at least missing \+ 2"),
    ],
)
def test_settings_that_do_not_fit(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        DemonstrationSettings(**given)


def test_an_account_adds_up_or_is_none() -> None:
    gone = (Dropped("a sensor is frozen", 2, "the first is row 5"),)
    account = Account("log.csv", 10, 8, 1, ("a",), 8, gone, ("a note",))
    assert account.lines() == [
        "log.csv: 10 rows, 1 episode",
        "kept: 8 rows as 1 trajectory of 8 samples together",
        "dropped: 2 rows, a sensor is frozen; the first is row 5",
        "a note",
    ]
    assert [row[1] for row in account.table().rows] == ["10", "8", "2"]
    with pytest.raises(ValueError, match="10 rows were read, but 11"):
        Account("log.csv", 10, 9, 1, ("a",), 9, gone)


def test_numbered_names_never_meet() -> None:
    assert numbered(["a", "b", "a"]) == ["a.1", "b", "a.2"]
    assert numbered(["", ""]) == ["1", "2"]
    assert (
        numbered(["a", "a", "a.1"]) == ["a..1", "a..2", "a.1"]
        or len(set(numbered(["a", "a", "a.1"]))) == 3
    )
