"""Which rows make up an episode, and in which order? By a column, by gaps in time, or by both."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UsageError
from trainers.control.demonstrations.account import Fate, Fates
from trainers.control.demonstrations.cells import Floats
from trainers.control.demonstrations.load import Columns

Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Episode:
    """Rows of one episode, each later than the one before.

    Attributes
    ----------
    name : what it is called, unlike any other.
    rows : (n,), where each row stands in the file.
    time : (n,), s.
    values : (n, c), observations and actions; NaN where one is missing.
    """

    name: str
    rows: Whole
    time: Floats
    values: Floats


def ordered(path: Path, columns: Columns) -> tuple[Whole, Fates, list[str]]:
    """Sort the rows by episode and time.

    Returns
    -------
    order : the rows that can be used, sorted.
    fate : (n,), KEPT for those, the reason for all others.
    notes : whether the file was out of order.

    Raises
    ------
    UsageError : where rows of one episode have the same time but not the same values.
    """
    fate = np.zeros(len(columns.time), np.int8)
    fate[np.isnan(columns.time)] = Fate.NO_TIME
    fate[columns.episode < 0] = Fate.NO_TRAJECTORY
    usable = np.flatnonzero(fate == Fate.KEPT)
    order = usable[np.lexsort((columns.time[usable], columns.episode[usable]))]
    same = _same_time(columns, order)
    values = columns.values[order]
    equal = (values[1:] == values[:-1]) | (np.isnan(values[1:]) & np.isnan(values[:-1]))
    conflict = np.flatnonzero(same & ~equal.all(axis=1))
    if len(conflict):
        one, two = (columns.place(int(order[conflict[0] + i])) for i in (0, 1))
        raise UsageError(
            f"{path}: {one} and {two} have the same time but other values, and "
            f"{len(conflict) - 1} more pair(s) like them; name the column that tells episodes "
            "apart as trajectory, or remove one of each"
        )
    repeated = order[1:][same]
    fate[repeated] = Fate.REPEATED
    return order[np.r_[True, ~same]] if len(order) else order, fate, _disorder(columns, usable)


def split(columns: Columns, order: Whole, gap: float | None) -> list[Episode]:
    """Cut sorted rows into episodes, where the column or the time says so."""
    if len(order) == 0:
        return []
    time, episode = columns.time[order], columns.episode[order]
    new = np.diff(episode) != 0
    if gap is not None:
        new |= np.diff(time) > gap
    parts = np.split(order, np.flatnonzero(new) + 1)
    names = numbered([columns.episodes[columns.episode[rows[0]]] for rows in parts])
    return [
        Episode(name, rows, columns.time[rows], columns.values[rows])
        for name, rows in zip(names, parts, strict=True)
    ]


def unbroken(episodes: Sequence[Episode], longest: float) -> list[Episode]:
    """Cut episodes where there is no row for longer than can be bridged; pieces keep the name."""
    found = []
    for e in episodes:
        cuts = np.flatnonzero(np.diff(e.time) > longest) + 1
        parts = [np.split(array, cuts) for array in (e.rows, e.time, e.values)]
        found += [Episode(e.name, *part) for part in zip(*parts, strict=True)]
    return found


def numbered(names: Sequence[str]) -> list[str]:
    """Tell pieces of the same name apart: a.1, a.2; pieces without a name are 1, 2.

    Where another already has that name, dots are added until none has.
    """
    total, taken, seen = Counter(names), set(names), Counter[str]()
    found = []
    for name in names:
        seen[name] += 1
        if name and total[name] == 1:
            found.append(name)
            continue
        dot = "." if name else ""
        while f"{name}{dot}{seen[name]}" in taken:
            dot += "."
        found.append(f"{name}{dot}{seen[name]}")
        taken.add(found[-1])
    return found


def _same_time(columns: Columns, order: Whole) -> NDArray[np.bool_]:
    """(n - 1,), whether a sorted row has episode and time of the one before."""
    time, episode = columns.time[order], columns.episode[order]
    same: NDArray[np.bool_] = (np.diff(time) == 0) & (np.diff(episode) == 0)
    return same


def _disorder(columns: Columns, usable: Whole) -> list[str]:
    """Say how many rows are earlier than the one before them in the same episode."""
    by_episode = usable[np.argsort(columns.episode[usable], kind="stable")]
    time, episode = columns.time[by_episode], columns.episode[by_episode]
    early = np.flatnonzero((np.diff(time) < 0) & (np.diff(episode) == 0))
    if len(early) == 0:
        return []
    place = columns.place(int(by_episode[early[0] + 1]))
    return [f"sorted by time: {len(early)} row(s) were too late in the file; the first is {place}"]
