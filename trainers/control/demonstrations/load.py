"""What is in the columns of a CSV or Parquet file? Cells as numbers, rows as the file has them."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray
from pyarrow import parquet

from cluster.errors import UsageError
from cluster.problems import did_you_mean
from trainers.control.demonstrations import cells
from trainers.control.demonstrations.cells import CellError, Floats
from trainers.control.demonstrations.settings import PARQUET_SUFFIXES, DemonstrationSettings


@dataclass(frozen=True)
class Columns:
    """n rows in the order of the file.

    Attributes
    ----------
    names : of the c columns: observations, then actions.
    time : (n,), s; NaN where it is missing.
    values : (n, c), after conversion of units; NaN where one is missing.
    episode : (n,), the number of each row's episode in `episodes`; -1 where it is missing.
    episodes : their names by the column that says so, in the order of the file; without such a
        column there is one, without a name.
    first : what the file's own rows are counted from: 2 below a header, else 1.
    """

    names: tuple[str, ...]
    time: Floats
    values: Floats
    episode: NDArray[np.int64]
    episodes: tuple[str, ...]
    first: int

    def place(self, row: int, name: str = "") -> str:
        """Where a row stands, in words, with the name of its episode if there is one."""
        number = int(self.episode[row])
        name = name or (self.episodes[number] if number >= 0 else "")
        return f"row {row + self.first}" + (f" of '{name}'" if name else "")


def load(path: Path, settings: DemonstrationSettings) -> Columns:
    """Read the columns that the settings name; all others are ignored.

    Text is UTF-8 with one header row and comma, semicolon or tab between cells. Numbers have a
    decimal point. In messages the header is row 1; empty lines are not counted.

    Raises
    ------
    UsageError : for a file that is no table, columns that it lacks, or text where numbers belong;
        all such columns at once.
    """
    time, trajectory = str(settings.time), settings.trajectory
    names = (*settings.observations, *settings.actions)
    asked = [time, *names, *([trajectory] if trajectory else [])]
    binary = path.suffix.lower() in PARQUET_SUFFIXES
    table = _parquet(path, asked) if binary else _text(path, asked)
    if table.num_rows == 0:
        raise UsageError(f"{path} has a header but no rows; export a longer span of time")
    first = 1 if binary else 2
    problems: list[str] = []

    def numbers(name: str) -> Floats:
        unit = settings.units.get(name)
        try:
            return cells.numbers(table.column(name), unit)
        except CellError as error:
            problems.append(f"column '{name}': {error.at(first)}")
            return np.full(table.num_rows, np.nan)

    values = np.stack([numbers(name) for name in names], axis=1)
    try:
        at = cells.seconds(table.column(time), settings.units.get(time))
    except CellError as error:
        problems.append(f"column '{time}': {error.at(first)}")
    if problems:
        raise UsageError("\n".join(f"{path}: {problem}" for problem in problems))
    episode, episodes = _episodes(path, table, trajectory)
    return Columns(names, at, values, episode, episodes, first)


def _episodes(
    path: Path, table: pa.Table, trajectory: str | None
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    if trajectory is None:
        return np.zeros(table.num_rows, np.int64), ("",)
    try:
        return cells.codes(table.column(trajectory))
    except CellError as error:
        raise UsageError(f"{path}: column '{trajectory}': {error}") from error


def _parquet(path: Path, asked: Sequence[str]) -> pa.Table:
    try:
        file = parquet.ParquetFile(path)
        _has_columns(path, asked, file.schema_arrow.names)
        return file.read(columns=list(asked))
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{path} cannot be read as Parquet: {error}") from error


def _text(path: Path, asked: Sequence[str]) -> pa.Table:
    """Columns of a text file, every cell as text."""
    delimiter, names = _header(path, asked)
    _has_columns(path, asked, names)
    empty = pa.table({name: pa.array([], pa.string()) for name in asked})
    try:
        with path.open("rb") as file:
            file.readline()
            if not any(line.strip() for line in file):
                return empty
        return pyarrow.csv.read_csv(
            path,
            pyarrow.csv.ReadOptions(column_names=names, skip_rows=1),
            pyarrow.csv.ParseOptions(delimiter=delimiter),
            pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(asked, pa.string()), include_columns=list(asked)
            ),
        )
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error


def _header(path: Path, asked: Sequence[str]) -> tuple[str, list[str]]:
    """The delimiter that finds most of the columns asked for, then most columns; and all names."""
    try:
        with path.open("rb") as file:
            line = file.readline().decode("utf-8-sig")
    except (UnicodeDecodeError, OSError) as error:
        raise _unreadable(path, error) from error
    if not line.strip():
        raise UsageError(f"{path} begins with an empty line; the first must name the columns")
    found = {d: [n.strip() for n in next(csv.reader([line], delimiter=d))] for d in ",;\t"}

    def rank(delimiter: str) -> tuple[int, int]:
        return len(set(asked) & set(found[delimiter])), len(found[delimiter])

    best = max(found, key=rank)
    return best, found[best]


def _unreadable(path: Path, error: Exception) -> UsageError:
    return UsageError(
        f"{path} cannot be read as UTF-8 text in columns: {error}; export it as 'CSV UTF-8' or as "
        "Parquet"
    )


def _has_columns(path: Path, asked: Sequence[str], names: Sequence[str]) -> None:
    problems = [
        f"{path}: there is no column '{name}'{did_you_mean(name, names)}"
        for name in asked
        if name not in names
    ]
    if problems:
        shown = ", ".join(names[:30]) + (", ..." if len(names) > 30 else "")
        raise UsageError("\n".join([*problems, f"{path} has the columns {shown}"]))
    for name in asked:
        if list(names).count(name) > 1:
            raise UsageError(f"{path}: two columns are named '{name}'; rename one of them")
