"""Columns of a user's file, as numbers or as labels, with every cell that cannot be used noted.

Only the columns asked for are kept. Cells that are no numbers become NaN and are counted, with
the row and the text of the first, so that a reader hears of all faults of a file at once.

Errors raised here are sentences about the file that do not name it; `tables.read_table` does.
"""

import csv
import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cluster.errors import UsageError
from federated.fedgmm.rows import Floats

CSV_SUFFIXES = (".csv", ".tsv", ".txt")
PARQUET_SUFFIXES = (".parquet", ".pq")

_MISSING = frozenset({"", ".", "na", "n/a", "#n/a", "nan", "null", "none", "<na>"})
_WORDS = {"true": 1.0, "false": 0.0}


@dataclass
class Numbers:
    """One numeric column as it is read, row by row."""

    name: str
    cells: "array[float]" = field(default_factory=lambda: array("d"))
    words: dict[str, int] = field(default_factory=dict)  # unreadable text -> row it first stood in
    wordy: int = 0  # cells with such text
    missing: int = 0  # cells that are empty, NaN or infinite
    missing_row: int = 0  # the first of them

    def add(self, cell: str, row: int) -> None:
        """Append a cell of text, which stands in row `row` of the file."""
        text = cell.strip()
        try:
            # float() takes 1_000 for a number, a person who wrote it probably meant a name
            value = float(text) if "_" not in text else None
        except ValueError:
            value = math.nan if text.lower() in _MISSING else _WORDS.get(text.lower())
        if value is None:
            self.wordy += 1
            if len(self.words) < 4:
                self.words.setdefault(text, row)
        elif not math.isfinite(value):
            self._note_missing(row)
        self.cells.append(math.nan if value is None else value)

    def extend(self, values: Floats, first_row: int) -> None:
        """Append cells that are numbers already."""
        for position in np.flatnonzero(~np.isfinite(values)):
            self._note_missing(first_row + int(position))
        self.cells.frombytes(values.astype(np.float64).tobytes())

    @property
    def values(self) -> Floats:
        """The column, shape (n,), NaN where a cell could not be used."""
        return np.array(self.cells, dtype=np.float64)

    def _note_missing(self, row: int) -> None:
        self.missing += 1
        self.missing_row = self.missing_row or row


@dataclass
class Labels:
    """The client column as it is read, row by row."""

    name: str
    cells: list[str] = field(default_factory=list)
    missing: int = 0
    missing_row: int = 0

    def add(self, cell: str, row: int) -> None:
        """Append a cell of text, which stands in row `row` of the file."""
        label = cell.strip()
        if not label:
            self.missing += 1
            self.missing_row = self.missing_row or row
        self.cells.append(label)


def header(path: Path, wanted: Sequence[str]) -> tuple[list[str], str]:
    """Return the column names of a file and, for text, the delimiter between its cells.

    Among comma, semicolon and tab the delimiter is the one with which the first line holds most
    of the wanted columns, then the one that gives most columns.

    Raises UsageError when the file is missing, empty, unreadable or of an unknown kind.
    """
    suffix = path.suffix.lower()
    if suffix not in CSV_SUFFIXES + PARQUET_SUFFIXES:
        known = ", ".join(CSV_SUFFIXES + PARQUET_SUFFIXES)
        raise UsageError(f"the ending '{path.suffix}' is unknown; known: {known}.")
    if not path.is_file():
        raise UsageError("this is a folder." if path.is_dir() else "there is no such file.")
    if path.stat().st_size == 0:
        raise UsageError("the file is empty.")
    if suffix in PARQUET_SUFFIXES:
        return list(_open_parquet(path).schema_arrow.names), ""
    best: tuple[list[str], str] = ([], ",")
    best_rank = (-1, -1)
    for delimiter in ",;\t":
        names = [name.strip() for name in _first_record(path, delimiter)]
        rank = (len(set(wanted) & set(names)), len(names))
        if rank > best_rank:
            best, best_rank = (names, delimiter), rank
    if not any(best[0]):
        raise UsageError("the first line is empty; it must name the columns.")
    return best


def read(
    path: Path, delimiter: str, names: Sequence[str], sinks: Iterable[Numbers | Labels]
) -> int:
    """Read the columns of `sinks` from the file whose `header` is `names`; return its rows.

    Rows are numbered as a person sees them: in a text file the header is row 1 (a spreadsheet's
    numbering, in which a quoted line break does not start a row), in Parquet the first row is 1.
    Empty lines of a text file count but hold no row.

    Raises UsageError when the file is not UTF-8 text or not a table.
    """
    if path.suffix.lower() in PARQUET_SUFFIXES:
        return _read_parquet(path, sinks)
    return _read_text(path, delimiter, names, sinks)


def _read_text(
    path: Path, delimiter: str, names: Sequence[str], sinks: Iterable[Numbers | Labels]
) -> int:
    targets = [(names.index(sink.name), sink) for sink in sinks]
    count = 0
    row = 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for row, record in enumerate(csv.reader(file, delimiter=delimiter), start=1):
                if row == 1 or not record:
                    continue
                if len(record) != len(names):
                    raise UsageError(
                        f"row {row} has {len(record)} cells where the header has {len(names)}; "
                        f"quote cells that contain the delimiter {delimiter!r}."
                    )
                for position, sink in targets:
                    sink.add(record[position], row)
                count += 1
    except (UnicodeDecodeError, csv.Error, OSError) as error:
        raise _unreadable(error, row + 1) from error
    return count


def _first_record(path: Path, delimiter: str) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return next(csv.reader(file, delimiter=delimiter), [])
    except (UnicodeDecodeError, csv.Error, OSError) as error:
        raise _unreadable(error, 1) from error


def _unreadable(error: Exception, row: int) -> UsageError:
    if isinstance(error, UnicodeDecodeError):
        return UsageError("the file is not UTF-8 text; save it as 'CSV UTF-8' or as Parquet.")
    if isinstance(error, csv.Error):
        return UsageError(f"row {row} cannot be read as delimited text ({error}).")
    return UsageError(f"the file cannot be read ({error}).")


def _open_parquet(path: Path) -> Any:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        return ParquetFile(path)
    except (ArrowException, OSError) as error:
        raise UsageError(f"the file cannot be read as Parquet ({error}).") from error


def _read_parquet(path: Path, sinks: Iterable[Numbers | Labels]) -> int:
    from pyarrow import ArrowException

    sinks = list(sinks)
    try:
        table = _open_parquet(path).read(columns=[sink.name for sink in sinks])
    except (ArrowException, OSError) as error:
        raise UsageError(f"the file cannot be read as Parquet ({error}).") from error
    for sink in sinks:
        _fill(sink, table.column(sink.name))
    return int(table.num_rows)


def _fill(sink: Numbers | Labels, column: Any) -> None:
    """Move one Parquet column into its sink."""
    import pyarrow as pa
    from pyarrow import compute, types

    kind = column.type
    if isinstance(sink, Numbers) and types.is_boolean(kind):
        column, kind = compute.cast(column, pa.uint8()), pa.uint8()
    numeric = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    if isinstance(sink, Numbers) and numeric:
        floats = compute.cast(column, pa.float64(), safe=False)
        sink.extend(compute.fill_null(floats, math.nan).to_numpy(), first_row=1)
        return
    try:
        text = compute.cast(column, pa.string())
    except pa.ArrowException as error:
        raise UsageError(
            f"column '{sink.name}' is of type {kind}, which is neither numbers nor text."
        ) from error
    for row, cell in enumerate(text.to_pylist(), start=1):
        sink.add(cell or "", row)
