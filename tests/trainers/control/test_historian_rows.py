"""Which rows of an export become which samples: episodes, order, resampling, units."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.trainers.control.logged import ROWS, as_csv, complaint, expected, log, read, sample
from trainers.control.demonstrations.account import Account, Dropped
from trainers.control.demonstrations.episodes import numbered
from trainers.control.demonstrations.settings import Conversion


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
