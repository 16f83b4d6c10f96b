"""Which cells cannot be believed? Values outside limits, other units, and frozen sensors."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UsageError
from trainers.control.demonstrations.account import Fate
from trainers.control.demonstrations.cells import Floats
from trainers.control.demonstrations.episodes import Episode
from trainers.control.demonstrations.load import Columns
from trainers.control.demonstrations.settings import Conversion

Limits = Mapping[str, tuple[float, float]]

Causes = NDArray[np.int8]
"""(n, c), why a cell of an episode cannot be used, as a `Fate`; KEPT where it can."""

ABSURD = 0.5
"""Share of a column's values outside limits from which on its unit is doubted."""

MOVES = 0.1
"""Standard deviations of a column by which it must change to count as moving."""

STEPS = 0.5
"""Share of a column's rows that stand still from which on that is its nature: a set-point."""

CONVERSIONS = (
    (1.0, -273.15), (1.0, 273.15), (5 / 9, -160 / 9), (1.8, 32.0), (0.01, 0.0), (100.0, 0.0),
    (0.001, 0.0), (1000.0, 0.0), (1 / 60, 0.0), (60.0, 0.0), (1 / 3600, 0.0), (3600.0, 0.0),
    (1e-5, 0.0), (1e5, 0.0),
)  # fmt: skip
"""Scale and offset of usual mistakes: kelvin, Fahrenheit, percent, thousands, minutes, pascal."""


def check_units(
    path: Path, columns: Columns, limits: Limits, units: Mapping[str, Conversion]
) -> None:
    """Refuse columns that are mostly outside their limits.

    Raises
    ------
    UsageError : naming every such column, and the conversion that would bring it inside.
    """
    problems = []
    for name, (low, high) in limits.items():
        values = columns.values[:, columns.names.index(name)]
        values = values[np.isfinite(values)]
        share = 1 - _inside(values, low, high)
        if share > ABSURD:
            problems.append(
                f"{path}: {share:.0%} of column '{name}' is outside its limits [{low:g}, {high:g}]"
                f", half of it above {np.median(values):g}; "
                + _advice(name, values, (low, high), units.get(name, Conversion()))
            )
    if problems:
        raise UsageError("\n".join(problems))


def causes(
    episodes: Sequence[Episode], columns: Columns, limits: Limits, observed: int, still: float
) -> tuple[list[Causes], list[str]]:
    """Find the cells that cannot be used.

    Parameters
    ----------
    observed : how many of the columns, the first ones, are observations; the others are actions.
    still : s that an observation may stand still while others move.

    Returns
    -------
    causes : for each episode.
    notes : on columns that stand still by nature.
    """
    found = [_outside(episode, columns.names, limits, observed) for episode in episodes]
    seen = [
        np.where(cause == Fate.KEPT, e.values, np.nan)
        for e, cause in zip(episodes, found, strict=True)
    ]
    spread = _spread(seen, len(columns.names))
    total = max(sum(len(e.rows) for e in episodes), 1)
    notes = []
    for column in range(observed):
        runs = [
            list(_still(e.time, v[:, column], still)) for e, v in zip(episodes, seen, strict=True)
        ]
        share = sum(last - first for each in runs for first, last in each) / total
        if share > STEPS:
            ever = any(len(each) != 1 for each in runs)
            notes.append(_standing(columns.names[column], share, ever))
            continue
        for values, cause, each in zip(seen, found, runs, strict=True):
            for first, last in each:
                if _move(values[first:last], spread):  # the others, as this one is still
                    cause[first:last, column] = Fate.FROZEN
    return found, notes


def _outside(episode: Episode, names: Sequence[str], limits: Limits, observed: int) -> Causes:
    """Causes of cells that are missing or outside limits."""
    cause = np.where(np.isnan(episode.values), Fate.MISSING, Fate.KEPT).astype(np.int8)
    for name, (low, high) in limits.items():
        column = names.index(name)
        values = episode.values[:, column]
        kind = Fate.RANGE if column < observed else Fate.ACTION
        cause[(values < low) | (values > high), column] = kind
    return cause


def _spread(values: Sequence[Floats], count: int) -> Floats:
    """(c,), standard deviation of every column over all episodes; 0 where it never changes."""
    everything = np.concatenate([np.empty((0, count)), *values])
    found = np.zeros(count)
    for column in range(count):
        known = everything[np.isfinite(everything[:, column]), column]
        found[column] = known.std() if len(known) else 0.0
    return found


def _still(time: Floats, values: Floats, still: float) -> Iterator[tuple[int, int]]:
    """First row, and the one after the last, of each stretch of equal values that is too long."""
    starts = np.flatnonzero(np.r_[True, values[1:] != values[:-1]])
    ends = np.r_[starts[1:], len(values)]
    for first, last in zip(starts.tolist(), ends.tolist(), strict=True):
        if last - first > 2:
            lasted = time[last - 1] - time[first]
            slack = 0.5 * lasted / (last - first - 1)  # half a row, as clocks are not exact
            if lasted + slack >= still:
                yield first, last


def _move(values: Floats, spread: Floats) -> bool:
    """Whether any column moves by more than a little."""
    change = np.fmax.reduce(values, axis=0) - np.fmin.reduce(values, axis=0)
    return bool(((change > MOVES * spread) & (spread > 0)).any())


def _standing(name: str, share: float, ever: bool) -> str:
    """Say what a column is taken for that stands still most of the time, or always."""
    if not ever and share == 1.0:
        return (
            f"observation '{name}' never changes within an episode; leave it out if its sensor is "
            "dead"
        )
    return (
        f"observation '{name}' stands still in {share:.0%} of its rows and is taken for one that "
        "moves in steps, as a set-point does; frozen stretches of it are not looked for"
    )


def _inside(values: Floats, low: float, high: float) -> float:
    """Share of values within limits; 1 where there is none."""
    return float(((values >= low) & (values <= high)).mean()) if len(values) else 1.0


def _advice(name: str, values: Floats, limits: tuple[float, float], given: Conversion) -> str:
    """Say which conversion would bring most values inside, as it would stand in the settings."""
    shares = [_inside(scale * values + offset, *limits) for scale, offset in CONVERSIONS]
    best = int(np.argmax(shares))
    if shares[best] < 1 - ABSURD:
        return "convert it with units, or correct the limits"
    scale, offset = CONVERSIONS[best]
    scale, offset = scale * given.scale, scale * given.offset + offset
    return (
        f"it looks like another unit: units: {{'{name}': {{scale: {scale:.6g}, offset: "
        f"{offset:.6g}}}}} would bring {shares[best]:.0%} inside"
    )
