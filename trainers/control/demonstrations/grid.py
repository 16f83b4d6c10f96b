"""What were observations and actions at even moments? An episode's rows, resampled and cut.

Sample k of an episode is at its first row's time + k * seconds. Observations are interpolated
between the rows around that moment; an action holds until the next one is written. A row belongs
to the last sample that is not later than itself, so that each row has one sample.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainers.control.demonstrations.account import Fate, Fates
from trainers.control.demonstrations.cells import Floats
from trainers.control.demonstrations.episodes import Episode, Whole
from trainers.control.demonstrations.faults import Causes

ON_TIME = 0.01
"""Share of a sample within which a row counts as being at the sample's moment: clocks jitter."""


@dataclass(frozen=True)
class Grid:
    """The samples of one episode.

    Attributes
    ----------
    values : (T, c), observations and actions; meaningless where a sample is dropped.
    fate : (T,), KEPT or the reason to drop it.
    sample : (n,), the sample that each row of the episode belongs to.
    """

    values: Floats
    fate: Fates
    sample: Whole

    def pieces(self) -> Iterator[slice]:
        """Unbroken runs of kept samples."""
        kept = np.r_[False, self.fate == Fate.KEPT, False]
        edges = np.flatnonzero(np.diff(kept.astype(np.int8)))
        for first, last in edges.reshape(-1, 2).tolist():
            yield slice(first, last)

    def rows(self, cause: Causes) -> Fates:
        """What became of each row: its sample's fate, or the fault of its own that led to it."""
        of_sample = self.fate[self.sample]
        own = np.maximum(cause.max(axis=1), of_sample)
        found: Fates = np.where(of_sample == Fate.MISSING, own, of_sample).astype(np.int8)
        return found


def longest(missing: int, seconds: float) -> float:
    """Return the s between two rows that may be bridged when so many samples may be missing."""
    return (missing + 1 + ON_TIME) * seconds


def resample(
    episode: Episode,
    cause: Causes,
    observed: int,
    *,
    seconds: float,
    missing: int,
    shortest: int,
) -> Grid:
    """Bring one episode to even moments and drop what cannot be known or used.

    Parameters
    ----------
    cause : (n, c), as `faults.causes` has it.
    observed : how many of the columns, the first ones, are observations; the others are actions.
    seconds : between samples.
    missing : samples that may be bridged.
    shortest : samples of the shortest run that is kept.
    """
    sample = _sample(episode.time - episode.time[0], seconds)
    count = int(sample[-1]) + 1
    at = episode.time[0] + np.arange(count) * seconds
    values = np.empty((count, episode.values.shape[1]))
    fate = np.zeros(count, np.int8)
    for column in range(values.shape[1]):
        acts = column >= observed
        # a forbidden action is one, and holds until the next; only what is unknown is bridged
        known = cause[:, column] != Fate.MISSING if acts else cause[:, column] == Fate.KEPT
        knots, written = episode.time[known], episode.values[known, column]
        values[:, column], found = bridged(
            knots, written, at, longest(missing, seconds), ON_TIME * seconds, hold=acts
        )
        np.maximum(fate, np.where(found, Fate.KEPT, Fate.MISSING), out=fate, casting="unsafe")
        if acts:
            forbidden = cause[known, column] == Fate.ACTION
            fate[_held(knots - episode.time[0], forbidden, seconds, count)] = Fate.ACTION
    grid = Grid(values, fate, sample)
    for piece in list(grid.pieces()):
        if piece.stop - piece.start < shortest:
            fate[piece] = Fate.SHORT
    return grid


def bridged(
    knots: Floats, written: Floats, at: Floats, widest: float, slack: float, *, hold: bool
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the values of one column at other moments, and where they can be known.

    Parameters
    ----------
    knots, written : (m,), moments in order, s, and what was written then.
    at : (T,), moments in order.
    widest : s between two knots that may be bridged.
    slack : s by which a knot may miss a moment and still be what was written then.
    hold : whether a value holds until the next, or is interpolated.
    """
    if len(knots) == 0:
        return np.full(len(at), np.nan), np.zeros(len(at), np.bool_)
    after = np.searchsorted(knots, at - slack)
    last = len(knots) - 1
    right = np.minimum(after, last)
    left = np.maximum(after - 1, 0)
    here = (after <= last) & (knots[right] <= at + slack)
    wide = knots[right] - knots[left]
    between = (after >= 1) & (after <= last) & (wide <= widest)
    share = np.zeros(len(at)) if hold else (at - knots[left]) / np.where(wide > 0, wide, 1.0)
    reached = written[left] + share * (written[right] - written[left])
    return np.where(here, written[right], reached), here | between


def _sample(since: Floats, seconds: float) -> Whole:
    """The sample that a moment, s since the first row, belongs to."""
    return np.floor(since / seconds + ON_TIME).astype(np.int64)


def _held(
    since: Floats, forbidden: NDArray[np.bool_], seconds: float, count: int
) -> NDArray[np.bool_]:
    """(count,), the samples during which a forbidden action held."""
    found = np.zeros(count, np.bool_)
    first = _sample(since, seconds)
    until = np.ceil(np.r_[since[1:], np.inf] / seconds - ON_TIME)
    for row in np.flatnonzero(forbidden):
        found[first[row] : max(first[row] + 1, int(min(until[row], count)))] = True
    return found
