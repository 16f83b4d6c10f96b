"""Reading a user's own table: what is accepted, and what is said of what is not."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import UsageError
from federated.fedgmm.rows import Dataset
from federated.fedgmm.sources import read_table

HEADER = ("wage", "educ", "near", "age", "region")
CELLS = [
    (1.5 + i % 4, 10 + i % 3, i % 2, 30 + i * i % 11, "north" if i < 7 else "south")
    for i in range(12)
]
ROLES: dict[str, Any] = {
    "outcome": "wage",
    "treatments": ["educ"],
    "instruments": ["near"],
    "controls": ["age"],
    "client_column": "region",
}


def text(delimiter: str = ",", replaced: dict[tuple[int, int], str] | None = None) -> str:
    """Return the table as text; `replaced` maps (row from 1, column from 0) to a cell."""
    lines = [list(HEADER), *([str(cell) for cell in row] for row in CELLS)]
    for (row, column), cell in (replaced or {}).items():
        lines[row - 1][column] = cell
    return "".join(delimiter.join(line) + "\n" for line in lines)


def read(path: Path, content: str | bytes, **changed: Any) -> Dataset:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_table(path, **{**ROLES, **changed})


def complaint(path: Path, content: str | bytes, **changed: Any) -> str:
    with pytest.raises(UsageError) as caught:
        read(path, content, **changed)
    return str(caught.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "wages.csv"


def assert_as_written(data: Dataset) -> None:
    assert data.rows.y.tolist() == [row[0] for row in CELLS]
    assert data.rows.x.tolist() == [[row[1]] for row in CELLS]
    assert data.rows.z.tolist() == [[row[2]] for row in CELLS]
    assert data.rows.w.tolist() == [[row[3]] for row in CELLS]
    assert data.client is not None
    assert data.client.tolist() == [row[4] for row in CELLS]
    assert data.names.w == ("age",)
    assert data.warnings == ()
    assert data.truth is None


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".TXT"])
def test_delimiter_is_found(tmp_path: Path, delimiter: str, suffix: str) -> None:
    assert_as_written(read(tmp_path / f"t{suffix}", text(delimiter)))


def test_delimiter_is_the_one_that_finds_the_wanted_columns(file: Path) -> None:
    lines = [f"{'a;b;c;d;e;f;g;h' if i == 0 else i},{row}" for i, row in enumerate(text().split())]
    assert_as_written(read(file, "\n".join(lines)))


def test_byte_order_mark_quotes_and_windows_line_ends(file: Path) -> None:
    content = text().replace("wage,", '"wage",').replace("north", '"north"').replace("\n", "\r\n")
    assert_as_written(read(file, b"\xef\xbb\xbf" + content.encode()))


def test_spaces_and_empty_lines_do_not_matter(file: Path) -> None:
    assert_as_written(read(file, text(", ").replace("\n", "\n\n")))


def test_other_columns_are_ignored_whatever_they_hold(file: Path) -> None:
    lines = [f'"note, {i}\n2nd line",{line}' for i, line in enumerate(text().splitlines())]
    assert_as_written(read(file, "\n".join(lines)))


def test_several_columns_keep_their_order(file: Path) -> None:
    data = read(file, text(), treatments=["age"], instruments=["near", "educ"], controls=[])
    assert data.rows.z.tolist() == [[row[2], row[1]] for row in CELLS]
    assert data.rows.w.shape == (12, 0)
    assert data.names.z == ("near", "educ")


def test_without_a_client_column_there_are_no_clients(file: Path) -> None:
    assert read(file, text(), client_column=None).client is None


def test_true_and_false_are_one_and_zero(file: Path) -> None:
    words = {(i + 2, 2): "True" if row[2] else "FALSE" for i, row in enumerate(CELLS)}
    assert_as_written(read(file, text(replaced=words)))


def test_numbers_as_people_write_them(file: Path) -> None:
    data = read(file, text(replaced={(2, 0): "1e-3", (3, 0): "-.5", (4, 0): "+2", (5, 0): " 7 "}))
    assert data.rows.y[:4].tolist() == [0.001, -0.5, 2.0, 7.0]


def columns() -> dict[str, list[Any]]:
    return {name: [row[i] for row in CELLS] for i, name in enumerate(HEADER)}


@pytest.mark.parametrize("suffix", [".parquet", ".pq"])
def test_parquet(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    pq.write_table(pa.table({**columns(), "extra": [[1]] * 12}), path)
    assert_as_written(read_table(path, **ROLES))


def test_parquet_column_types(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    held = {name: pa.array(cells) for name, cells in columns().items()}
    held["wage"] = held["wage"].cast(pa.decimal128(8, 2))
    held["educ"] = held["educ"].cast(pa.string())
    held["near"] = held["near"].cast(pa.bool_())
    held["age"] = held["age"].cast(pa.float32())
    held["region"] = held["region"].dictionary_encode()
    pq.write_table(pa.table(held), path)
    assert_as_written(read_table(path, **ROLES))


def test_parquet_client_numbers_are_labels(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({**columns(), "region": [i % 2 for i in range(12)]}), path)
    client = read_table(path, **ROLES).client
    assert client is not None
    assert client.tolist() == ["0", "1"] * 6


def test_parquet_faults(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    held = columns()
    held["wage"][3] = None
    held["educ"] = [float("inf") if i == 5 else value for i, value in enumerate(held["educ"])]
    held["age"] = ["old"] * 12
    held["region"][1] = None
    pq.write_table(pa.table({**held, "near": [[0]] * 12}), path)
    with pytest.raises(UsageError, match="column 'near' is of type list"):
        read_table(path, **ROLES)
    pq.write_table(pa.table(held), path)
    with pytest.raises(UsageError) as caught:
        read_table(path, **ROLES)
    message = str(caught.value)
    assert "column 'wage' has 1 cell that is empty, NaN or infinite, the first in row 4;" in message
    assert "column 'educ' has 1 cell that is empty, NaN or infinite, the first in row 6;" in message
    assert "column 'age' holds text ('old'), the first in row 1; code it as numbers" in message
    assert "client column 'region' has 1 cell that is empty, the first in row 2;" in message


def test_damaged_parquet(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(columns()), path)
    whole = path.read_bytes()
    assert "cannot be read as Parquet" in complaint(path, whole[:-10])
    assert "cannot be read as Parquet" in complaint(path, text())
    pq.write_table(pa.table({"other": [1.0]}), path)
    with pytest.raises(UsageError, match="there is no column 'wage'"):
        read_table(path, **ROLES)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("w.xlsx", "", "w.xlsx: the ending '.xlsx' is unknown; known: .csv, .tsv, .txt, .parquet"),
        ("w.csv", "", "w.csv: the file is empty."),
        ("w.parquet", "", "w.parquet: the file is empty."),
        ("w.csv", "\n1,2\n", "w.csv: the first line is empty; it must name the columns."),
        ("w.csv", "wage,educ,near,age,region\n", "the file has a header but no rows."),
        ("w.csv", "wage,educ,near,age,region\n1,2,3\n", "row 2 has 3 cells where the header has 5"),
        ("w.csv", text().encode().replace(b"north", b"n\xf6rd"), "not UTF-8 text; save it as"),
        ("w.csv", text().encode("utf-16"), "not UTF-8 text"),
        ("w.csv", text() + '"' + "x" * 200_000 + '",1,1,1,a\n', "row 14 cannot be read"),
    ],
)
def test_unreadable_files(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    assert message in complaint(tmp_path / name, content)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.csv: there is no such file\."):
        read_table(tmp_path / "none.csv", **ROLES)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(UsageError, match=r"folder\.csv: this is a folder\."):
        read_table(tmp_path / "folder.csv", **ROLES)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"outcome": "wages"},
            "there is no column 'wages'; did you mean 'wage'? "
            "The file has: wage, educ, near, age, region.",
        ),
        ({"controls": ["AGE"]}, "there is no column 'AGE'; did you mean 'age'?"),
        ({"client_column": "zzz"}, "there is no column 'zzz'; The file has:"),
        (
            {"controls": ["near"]},
            "column 'near' is named as an instrument and as a control; controls serve as their "
            "own instruments, so name it as a control alone.",
        ),
        (
            {"treatments": ["wage"]},
            "column 'wage' is named as the outcome and as a treatment; it can have one role only.",
        ),
        ({"controls": ["age", "age"]}, "column 'age' is named as a control and as a control;"),
        ({"client_column": "near"}, "'near' is named as an instrument and as the client column;"),
        ({"instruments": []}, "1 treatment(s) need at least as many instruments, 0 are named."),
        ({"treatments": []}, "no treatment column is named; name at least one."),
        (
            {"treatments": ["educ", "age"], "controls": []},
            "2 treatment(s) need at least as many instruments, 1 are named.",
        ),
    ],
)
def test_names_and_roles(file: Path, changed: dict[str, Any], message: str) -> None:
    assert message in complaint(file, text(), **changed)


def test_a_column_named_twice(file: Path) -> None:
    content = text().replace("region", "educ", 1)
    assert "the header names column 'educ' 2 times; rename all but one." in complaint(
        file, content, client_column=None
    )


def test_a_client_column_may_be_a_control(file: Path) -> None:
    data = read(file, text(), client_column="age")
    assert data.client is not None
    assert data.client.tolist() == [str(row[3]) for row in CELLS]


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        (
            {(9, 1): "twelve"},
            "column 'educ' has 1 cell that is not a number, the first in row 9: 'twelve'.",
        ),
        (
            {(9, 1): "x", (4, 1): "y", (5, 1): "x"},
            "3 cells that are not a number, the first in row 4: 'y'.",
        ),
        ({(3, 0): "3,5"}, "row 3: '3,5'; write decimals with a point."),
        ({(3, 0): "1_000"}, "'wage' has 1 cell that is not a number, the first in row 3: '1_000'."),
        ({(3, 0): "z" * 99}, f"row 3: '{'z' * 37}...'."),
        (
            {(13, 3): "", (6, 3): "NA", (7, 3): "nan", (8, 3): "-inf"},
            "column 'age' has 4 cells that are empty, NaN or infinite, the first in row 6; "
            "drop those rows or fill them in.",
        ),
        (
            {(5, 4): " "},
            "the client column 'region' has 1 cell that is empty, the first in row 5; "
            "every row needs a client.",
        ),
    ],
)
def test_cells(file: Path, replaced: dict[tuple[int, int], str], message: str) -> None:
    assert message in complaint(file, text(";", replaced))


def test_rows_are_counted_as_a_spreadsheet_does(file: Path) -> None:
    lines = text(replaced={(4, 1): "?"}).splitlines()
    lines[2] = lines[2].replace("north", '"north\nand more"')
    assert "the first in row 5: '?'" in complaint(file, "\n".join([*lines[:3], "", *lines[3:]]))


def test_text_columns_are_to_be_coded(file: Path) -> None:
    message = complaint(file, text(), controls=["age", "region"])
    assert message.endswith(
        "column 'region' holds text ('north', 'south'), the first in row 2; code it as numbers, "
        "for example one column of 0 and 1 for each value but one."
    )


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (0, "the outcome 'wage' is 3 in every row: there is nothing to explain."),
        (1, "the treatment 'educ' is 3 in every row: its effect cannot be seen."),
        (2, "the instrument 'near' is 3 in every row: it moves no treatment; leave it out."),
        (3, "the control 'age' is 3 in every row: the constant is included already; leave it out."),
    ],
)
def test_constant_columns(file: Path, column: int, message: str) -> None:
    assert message in complaint(file, text(replaced={(row, column): "3" for row in range(2, 14)}))


def test_too_few_rows(file: Path) -> None:
    content = "".join(text().splitlines(keepends=True)[:4])
    assert "3 rows cannot determine 3 parameters" in complaint(file, content)
    content = "".join(text().splitlines(keepends=True)[:5])
    assert len(read(file, content).rows) == 4


def test_small_clients_are_warned_of(file: Path) -> None:
    data = read(file, text(replaced={(2, 4): "east", (3, 4): "east"}))
    assert data.warnings == (
        "Client 'east' has 2 row(s), fewer than the 3 moments of instruments, controls and "
        "constant, so it has no estimate of its own.",
    )
    assert read(file, text(replaced={(row, 4): "east" for row in (2, 3, 4)})).warnings == ()


def test_every_fault_is_told_at_once(file: Path) -> None:
    replaced = {(5, 1): "?", (6, 4): "", **{(row, 2): "1" for row in range(2, 14)}}
    message = complaint(file, text(replaced=replaced), outcome="wages", controls=["age", "near"])
    parts = (
        "wages.csv has 6 problems:",
        "  - column 'near' is named as an instrument and as a control;",
        "  - there is no column 'wages'; did you mean 'wage'?",
        "  - column 'educ' has 1 cell that is not a number, the first in row 5: '?'.",
        "  - the client column 'region' has 1 cell that is empty, the first in row 6;",
        "  - the instrument 'near' is 1 in every row",
        "  - the control 'near' is 1 in every row",
    )
    for line, part in zip(message.splitlines(), parts, strict=True):
        assert part in line


def test_written_floats_are_read_to_the_bit(file: Path) -> None:
    values = np.random.default_rng(0).normal(size=(2_000, 4))
    body = "\n".join(",".join(repr(float(v)) for v in row) + ",a" for row in values)
    data = read(file, ",".join(HEADER) + "\n" + body)
    assert np.array_equal(data.rows.y, values[:, 0])
    assert np.array_equal(data.rows.w[:, 0], values[:, 3])
