"""What would a controller do, row by row of a user's table of observations?

Rows of one trajectory stand in order of time; with a column `trajectory` there can be many, and
without it there is one. z is that of a given mode, or read off the first samples of a trajectory
whose actions are known.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from cluster.errors import UsageError
from cluster.problems import did_you_mean
from trainers.control.controller import SavedController, load_from

TRAJECTORY = "trajectory"

Singles = NDArray[np.float32]

_LARGEST = float(np.finfo(np.float32).max)

_EMPTY = frozenset({"", "na", "n/a", "nan", "null", "none"})


@dataclass(frozen=True)
class Table:
    """Cells of a text file with a header.

    Attributes
    ----------
    name : what errors call it.
    columns : of each column its cells, all of the same number.
    lines : the line of each row in the file.
    """

    name: str
    columns: dict[str, list[str]]
    lines: list[int]

    def numbers(self, name: str) -> Singles:
        """A column (n,), NaN where a cell is empty.

        Raises
        ------
        UsageError : for text, or a number that single precision does not hold.
        """
        found = np.full(len(self.lines), np.nan, np.float32)
        for i, cell in enumerate(self.columns[name]):
            text = cell.strip()
            if text.lower() not in _EMPTY:
                found[i] = self._number(name, i, text)
        return found

    def _number(self, name: str, row: int, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not abs(value) <= _LARGEST:
            raise UsageError(
                f"{self.name}: column '{name}' has '{text[:40]}' in line {self.lines[row]}, which "
                "is no usable number; correct the cell, or leave it empty if it is not known"
            )
        return value


def read_table(path: Path) -> Table:
    """Read a UTF-8 text file with one header row and comma, semicolon or tab between cells.

    Raises
    ------
    UsageError : for a file that is no such table, or holds no rows.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text; save it as 'CSV UTF-8'") from None
    first = text.split("\n", 1)[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count))
    try:
        names = [name.strip() for name in next(reader, [])]
        rows = [(reader.line_num, cells) for cells in reader if cells]
    except csv.Error as error:
        raise UsageError(f"{path} cannot be read as delimited text ({error})") from None
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UsageError(f"{path} names the column '{twice[0]}' more than once; rename all but one")
    for line, cells in rows:
        if len(cells) != len(names):
            raise UsageError(
                f"{path}: line {line} has {len(cells)} cells where the header has {len(names)}; "
                "quote cells that contain the delimiter"
            )
    if not rows:
        raise UsageError(f"{path} holds no rows; it needs a header and at least one row")
    columns = {name: [cells[i] for _, cells in rows] for i, name in enumerate(names)}
    return Table(str(path), columns, [line for line, _ in rows])


@dataclass(frozen=True)
class Predicted:
    """The controller's answer to each of n rows.

    Attributes
    ----------
    actions : (n, a), in the units of the plant, within its limits.
    z : (n, c).
    mode : (n,), numbered from 0; the one whose code is nearest to z.
    """

    actions: Singles
    z: Singles
    mode: NDArray[np.int64]


def predict(
    controller: SavedController, table: Table, mode: int | None = None, infer: int | None = None
) -> Predicted:
    """Act on every row of a table.

    Parameters
    ----------
    mode : of every row, from 0. Without it, z of a trajectory is inferred from its first samples,
        as far as its action columns are filled, where the policy reads a z at all.
    infer : samples to infer from at most; by default the longest piece that training read.

    Raises
    ------
    UsageError : for columns, cells or a mode that the controller cannot use.
    """
    _need(table, controller.observations)
    x = np.stack([table.numbers(name) for name in controller.observations], axis=1)
    gaps = np.argwhere(np.isnan(x))
    if len(gaps):
        row, column = gaps[0]
        raise UsageError(
            f"{table.name}: column '{controller.observations[column]}' is empty in line "
            f"{table.lines[row]}; drop such rows or fill them in"
        )
    z = _inferred(controller, table, x, infer) if _infers(controller, mode, infer) else None
    if z is None:
        z = np.repeat(controller.codes[[mode or 0]], len(x), axis=0)
    with torch.no_grad():
        actions = controller.act(torch.from_numpy(x), torch.from_numpy(z))
    return Predicted(actions.numpy(), z, controller.modes(z))


def predict_file(place: Path, file: Path, mode: int | None, infer: int | None) -> str:
    """Return CSV text: for each row of a file the actions, and mode and z where there are any.

    Parameters
    ----------
    place : a run directory, or a folder that holds a controller.
    mode, infer : as in `predict`.
    """
    controller = load_from(place)
    table = read_table(file)
    return written(controller, table, predict(controller, table, mode, infer))


def written(controller: SavedController, table: Table, predicted: Predicted) -> str:
    """CSV text with a row for each row of the table; numbers read back as they were."""
    columns: dict[str, Sequence[object]] = {}
    if TRAJECTORY in table.columns:
        columns[TRAJECTORY] = table.columns[TRAJECTORY]
    columns |= dict(zip(controller.actions, predicted.actions.T, strict=True))
    if controller.policy.context:
        columns["mode"] = predicted.mode.tolist()
        columns |= {f"z{i}": column for i, column in enumerate(predicted.z.T)}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


def _infers(controller: SavedController, mode: int | None, infer: int | None) -> bool:
    """Whether z is to be inferred; both options are checked on the way."""
    context, last = controller.policy.context, len(controller.codes) - 1
    if not context and (mode is not None or infer is not None):
        raise UsageError("This controller has no modes; leave --mode and --infer out")
    if mode is not None and infer is not None:
        raise UsageError("A mode that is named is not inferred; use --mode or --infer, not both")
    if mode is not None and not 0 <= mode <= last:
        raise UsageError(f"There is no mode {mode}; this controller's are 0 to {last}")
    inferring = context > 0 and mode is None
    if inferring and controller.inference is None:
        raise UsageError(
            f"This controller cannot infer the mode; name one from 0 to {last} with --mode"
        )
    return inferring


def _inferred(controller: SavedController, table: Table, x: Singles, infer: int | None) -> Singles:
    """z (n, c) of every row, from the first samples of its trajectory."""
    most = infer if infer is not None else max(controller.pieces)
    if most < 1:
        raise UsageError(
            f"The mode cannot be inferred from {most} samples; --infer needs 1 or more"
        )
    _need(table, controller.actions, "; without actions, name the mode with --mode")
    u = np.stack([table.numbers(name) for name in controller.actions], axis=1)
    z = np.zeros((len(x), controller.policy.context), np.float32)
    for name, rows in _trajectories(table).items():
        known = np.asarray(np.isfinite(u[rows[:most]]).all(axis=1), np.bool_)
        piece = rows[: known.size if known.all() else int(known.argmin())]
        if not len(piece):
            raise UsageError(
                f"{table.name}: the mode {f'of trajectory {name!r} ' if name else ''}cannot be "
                f"inferred, since line {table.lines[rows[0]]}, its first, lacks an action; fill it "
                "in, or name the mode with --mode"
            )
        seen_x, seen_u = (torch.from_numpy(part[piece])[None] for part in (x, u))
        valid = torch.ones(1, len(piece), dtype=torch.bool)
        with torch.no_grad():
            _, found = controller.infer(seen_x, seen_u, valid)
        z[rows] = found.numpy()
    return z


def _trajectories(table: Table) -> dict[str, NDArray[np.int64]]:
    """Numbers of the rows of each trajectory, in their order."""
    if TRAJECTORY not in table.columns:
        return {"": np.arange(len(table.lines))}
    rows: dict[str, list[int]] = {}
    for i, cell in enumerate(table.columns[TRAJECTORY]):
        rows.setdefault(cell.strip(), []).append(i)
    return {name: np.array(found, np.int64) for name, found in rows.items()}


def _need(table: Table, names: Sequence[str], advice: str = "") -> None:
    missing = [name for name in names if name not in table.columns]
    if missing:
        hint = did_you_mean(missing[0], table.columns) or (
            "; it has: " + ", ".join(list(table.columns)[:20])
        )
        raise UsageError(
            f"{table.name} has no column {' and no '.join(repr(name) for name in missing)}"
            f"{hint}{advice}"
        )
