"""What does a column of cells say? Numbers, moments in time, or names."""

import math
from collections.abc import Callable, Collection

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from trainers.control.demonstrations.settings import Conversion

Floats = NDArray[np.float64]

WORDS = {"true": 1.0, "false": 0.0}

MISSING = frozenset(
    {
        "", "-", ".", "na", "n/a", "#n/a", "nan", "null", "none", "<na>",
        # states that historians write in place of a value
        "bad", "bad input", "no data", "no result", "i/o timeout", "comm fail", "pt created",
        "out of serv", "not connect", "shutdown", "scan off", "intf shut",
    }
)  # fmt: skip
"""Texts, in small letters, that stand for no value."""


NAMELESS = frozenset({""})
"""The same for names, which may be any word."""


class CellError(Exception):
    """A column cannot be read; `row` is the first cell at fault, from 0, or None."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row

    def at(self, first: int) -> str:
        """The message, with the row as the file counts it."""
        return str(self) if self.row is None else f"row {self.row + first} {self}"


def numbers(column: pa.ChunkedArray, unit: Conversion | None = None) -> Floats:
    """Return the cells (n,) as numbers in the unit they are used in, NaN where one is missing.

    Numbers that single precision cannot hold count as missing.

    Raises
    ------
    CellError : for text, or a column that holds something else.
    """
    values = _floats(column)
    if unit is not None:
        values = unit.scale * values + unit.offset
    usable = np.abs(values) <= np.finfo(np.float32).max
    return np.where(usable, values, np.nan)


def seconds(column: pa.ChunkedArray, unit: Conversion | None = None) -> Floats:
    """Return moments (n,) in s, NaN where one is missing.

    Numbers are taken as they are; timestamps, also as ISO 8601 text, count from the earliest.

    Raises
    ------
    CellError : for text that is neither, or a unit for timestamps.
    """
    kind = column.type
    if not pa.types.is_temporal(kind):
        try:
            found = _floats(column)
        except CellError:
            column = _timestamps(_text(column))
        else:
            found = found if unit is None else unit.scale * found + unit.offset
            return np.where(np.isfinite(found), found, np.nan)
    if unit is not None:
        raise CellError("holds timestamps, which have no unit to convert; leave its units out")
    try:
        moments = column.cast(pa.timestamp("ns", getattr(column.type, "tz", None)))
    except pa.ArrowException as error:
        raise CellError(f"is of type {column.type}, which is no moment in time") from error
    since = moments.cast(pa.int64())
    earliest = compute.min(since).as_py() or 0
    whole = compute.subtract(since.fill_null(earliest), earliest).to_numpy()
    return np.where(column.is_valid().to_numpy(), whole / 1e9, np.nan)


def codes(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the number (n,) of each cell's name, -1 where it is missing, and all names in order.

    Raises
    ------
    CellError : for a column that cannot be written as text.
    """
    coded = _text(column, NAMELESS).combine_chunks().dictionary_encode()
    found = coded.indices.fill_null(-1).to_numpy().astype(np.int64)
    return found, tuple(coded.dictionary.to_pylist())


def _floats(column: pa.ChunkedArray) -> Floats:
    """Numbers as they are written."""
    if not _is_text(column.type):
        try:
            return np.asarray(column.cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy())
        except pa.ArrowException as error:
            raise CellError(f"is of type {column.type}; it must hold numbers") from error
    text = _text(column)
    try:
        return np.asarray(text.cast(pa.float64()).fill_null(np.nan).to_numpy())
    except pa.ArrowException:  # slowly, cell by cell
        return np.array([_float(cell, row) for row, cell in enumerate(text.to_pylist())])


def _float(cell: str | None, row: int) -> float:
    if cell is None:
        return math.nan
    try:
        # float() takes 1_000 for a number; whoever wrote it probably meant a name
        return WORDS[cell.lower()] if cell.lower() in WORDS else float(cell.replace("_", "?"))
    except ValueError:
        shown = cell if len(cell) <= 40 else cell[:37] + "..."
        comma = cell.count(",") == 1 and cell.replace(",", "").lstrip("+-").isdigit()
        hint = "write decimals with a point" if comma else "leave a cell without a value empty"
        raise CellError(f"holds '{shown}', which is not a number; {hint}", row) from None


def _timestamps(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Moments of ISO 8601 text: all with a zone, or all without."""
    for zone in (None, "UTC"):
        try:
            return text.cast(pa.timestamp("ns", zone))
        except pa.ArrowException:
            continue
    row = _first(text, lambda cell: not _is_moment(cell))
    cell = text[row].as_py()
    raise CellError(
        f"holds '{cell}', which is neither a number of seconds nor a moment as 2026-01-31 12:00:00"
        "; write all moments alike, with or without a zone",
        row,
    )


def _first(text: pa.ChunkedArray, wrong: Callable[[pa.Scalar], bool]) -> int:
    """Row of the first cell that is wrong; of the first that is unlike the others if none is."""
    present = [row for row, cell in enumerate(text) if cell.is_valid]
    for row in present:
        if wrong(text[row]):
            return row
    zoned = [_is_moment(text[row], "UTC") for row in present]
    return present[zoned.index(not zoned[0])]


def _is_moment(cell: pa.Scalar, *zones: str | None) -> bool:
    for zone in zones or (None, "UTC"):
        try:
            cell.cast(pa.timestamp("ns", zone))
        except pa.ArrowException:
            continue
        return True
    return False


def _text(column: pa.ChunkedArray, missing: Collection[str] = MISSING) -> pa.ChunkedArray:
    """Cells as text without spaces around it, null where they stand for no value."""
    try:
        text = compute.utf8_trim_whitespace(column.cast(pa.string()))
    except pa.ArrowException as error:
        raise CellError(f"is of type {column.type}, which cannot be read as text") from error
    absent = compute.is_in(compute.utf8_lower(text), pa.array(sorted(missing)))
    return compute.if_else(absent, pa.scalar(None, pa.string()), text)


def _is_text(kind: pa.DataType) -> bool:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(inner) or pa.types.is_large_string(inner))
