"""What became of every row of a file? Counts of what was kept, what was dropped, and why."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from cluster.evidence import Table

Fates = NDArray[np.int8]
"""What became of each row, as a `Fate`."""


class Fate(IntEnum):
    """What became of a row; all but the first are reasons to drop it, the strongest last."""

    KEPT = 0
    SHORT = 1
    MISSING = 2
    RANGE = 3
    FROZEN = 4
    ACTION = 5
    REPEATED = 6
    NO_TIME = 7
    NO_TRAJECTORY = 8


REASONS = {
    Fate.SHORT: "what is left between cuts is too short",
    Fate.MISSING: "values are missing for too long",
    Fate.RANGE: "a sensor is outside its limits for too long",
    Fate.FROZEN: "a sensor is frozen",
    Fate.ACTION: "an action is outside its limits",
    Fate.REPEATED: "the row repeats another",
    Fate.NO_TIME: "the time is missing",
    Fate.NO_TRAJECTORY: "the trajectory's name is missing",
}


@dataclass(frozen=True)
class Dropped:
    """Rows that were dropped for one reason.

    Attributes
    ----------
    reason : what was wrong.
    rows : how many.
    first : where to look for an example.
    """

    reason: str
    rows: int
    first: str


@dataclass(frozen=True)
class Account:
    """What was read, kept and dropped.

    Attributes
    ----------
    source : the file.
    rows : read from it; each is kept or dropped, and a kept one may have been resampled.
    kept : of those rows, the ones within trajectories.
    episodes : as the file has them, before any cut.
    origins : for each trajectory that was kept, the episode that it is from.
    samples : of all trajectories together.
    dropped : the other rows, by reason.
    notes : what else was done to the data, as sentences.

    Raises
    ------
    ValueError : where a row is lost or counted twice.
    """

    source: str
    rows: int
    kept: int
    episodes: int
    origins: tuple[str, ...]
    samples: int
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Hold the sum against the rows."""
        counted = self.kept + sum(d.rows for d in self.dropped)
        if counted != self.rows:
            raise ValueError(f"{self.rows} rows were read, but {counted} are accounted for.")

    @property
    def trajectories(self) -> int:
        """How many were kept."""
        return len(self.origins)

    def lines(self) -> list[str]:
        """Sentences for a person: the sums, then each reason, then notes."""
        read = f"{self.source}: {_count(self.rows, 'row')}, {_count(self.episodes, 'episode')}"
        kept = (
            f"kept: {_count(self.kept, 'row')} as {_count(self.trajectories, 'trajectory')} of "
            f"{_count(self.samples, 'sample')} together"
        )
        gone = [f"dropped: {_count(d.rows, 'row')}, {d.reason}; {d.first}" for d in self.dropped]
        return [read, kept, *gone, *self.notes]

    def table(self) -> Table:
        """The same counts as a table."""
        rows = [
            ("read", str(self.rows), f"{_count(self.episodes, 'episode')} in {self.source}"),
            (
                "kept",
                str(self.kept),
                f"{_count(self.trajectories, 'trajectory')}, {_count(self.samples, 'sample')}",
            ),
            *((f"dropped: {d.reason}", str(d.rows), d.first) for d in self.dropped),
        ]
        return Table(("what", "rows", "where"), tuple(rows))


def dropped(fate: Fates, place: Callable[[int], str]) -> tuple[Dropped, ...]:
    """Count the rows of each reason.

    Parameters
    ----------
    fate : (n,).
    place : says where a row stands, by its number from 0.
    """
    found = []
    for code, reason in REASONS.items():
        rows = np.flatnonzero(fate == code)
        if len(rows):
            found.append(Dropped(reason, len(rows), f"the first is {place(int(rows[0]))}"))
    return tuple(found)


def _count(number: int, word: str) -> str:
    if number == 1:
        return f"1 {word}"
    return f"{number} {word[:-1]}ies" if word.endswith("y") else f"{number} {word}s"
