"""How does a plant's export become trajectories? Stage by stage, with the fate of every row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cluster.errors import UsageError
from trainers.control.demonstrations.account import Account, Fate, Fates, dropped
from trainers.control.demonstrations.episodes import Episode, numbered, ordered, split, unbroken
from trainers.control.demonstrations.faults import Causes, causes, check_units
from trainers.control.demonstrations.grid import Grid, longest, resample
from trainers.control.demonstrations.load import Columns, load
from trainers.control.demonstrations.settings import DemonstrationSettings
from trainers.control.trajectories import Singles, Trajectories, padded

UNEVEN = 0.02
"""Share of a sample by which rows may be apart from `seconds` without being called uneven."""


@dataclass(frozen=True)
class Piece:
    """A trajectory: its samples (T, c), and the episode that it is cut from."""

    origin: str
    values: Singles


def read_historian(path: Path, settings: DemonstrationSettings) -> tuple[Trajectories, Account]:
    """Read an export whose columns the settings describe in full.

    Raises
    ------
    UsageError : for a file that cannot be read as described, or of which nothing is left.
    """
    seconds = float(settings.seconds or 0)
    observed = len(settings.observations)
    columns = load(path, settings)
    check_units(path, columns, settings.limits, settings.units)
    order, fate, notes = ordered(path, columns)
    episodes = split(columns, order, settings.gap)
    stretches = unbroken(episodes, longest(settings.missing, seconds))
    still = settings.frozen * seconds
    faults, natural = causes(stretches, columns, settings.limits, observed, still)
    pieces: list[Piece] = []
    for episode, cause in zip(stretches, faults, strict=True):
        grid = resample(
            episode, cause, observed,
            seconds=seconds, missing=settings.missing, shortest=settings.shortest,
        )  # fmt: skip
        fate[episode.rows] = grid.rows(cause)
        pieces += _cut(episode, grid)
    notes += [*natural, *_spacing(episodes, seconds)]
    notes += _bridges(columns, stretches, faults, fate)
    account = _account(path, columns, episodes, fate, pieces, notes)
    if not pieces:
        raise UsageError("\n".join([f"{path}: no demonstrations are left", *account.lines()]))
    return _trajectories(settings, seconds, pieces), account


def _cut(episode: Episode, grid: Grid) -> Iterator[Piece]:
    for piece in grid.pieces():
        yield Piece(episode.name, grid.values[piece].astype(np.float32))


def _trajectories(
    settings: DemonstrationSettings, seconds: float, pieces: Sequence[Piece]
) -> Trajectories:
    values, length = padded([piece.values for piece in pieces])
    k = len(settings.observations)
    ids = np.array(numbered([piece.origin for piece in pieces]))
    x, u = values[:, :, :k].copy(), values[:, :, k:].copy()
    return Trajectories(settings.observations, settings.actions, seconds, ids, x, u, length)


def _account(
    path: Path,
    columns: Columns,
    episodes: Sequence[Episode],
    fate: Fates,
    pieces: Sequence[Piece],
    notes: Sequence[str],
) -> Account:
    names = np.full(len(fate), "", object)
    for episode in episodes:
        names[episode.rows] = episode.name
    return Account(
        source=path.name,
        rows=len(fate),
        kept=int((fate == Fate.KEPT).sum()),
        episodes=len(episodes),
        origins=tuple(piece.origin for piece in pieces),
        samples=sum(len(piece.values) for piece in pieces),
        dropped=dropped(fate, lambda row: columns.place(row, names[row])),
        notes=tuple(notes),
    )


def _spacing(episodes: Sequence[Episode], seconds: float) -> Iterator[str]:
    """Say how far rows are apart where it is not what samples are."""
    steps = np.concatenate([np.empty(0), *(np.diff(e.time) for e in episodes)])
    if len(steps) == 0:
        return
    uneven = np.abs(steps - seconds) > UNEVEN * seconds
    if uneven.any():
        low, middle, high = np.quantile(steps, [0.0, 0.5, 1.0])
        yield (
            f"resampled to {seconds:g} s: rows are {middle:g} s apart in the median, from "
            f"{low:g} to {high:g}"
        )


def _bridges(
    columns: Columns, stretches: Sequence[Episode], faults: Sequence[Causes], fate: Fates
) -> Iterator[str]:
    """Count the cells of kept rows that interpolation, or the action before, stands in for."""
    count = np.zeros(len(columns.names), np.int64)
    for episode, cause in zip(stretches, faults, strict=True):
        kept = fate[episode.rows] == Fate.KEPT
        count += (cause[kept] != Fate.KEPT).sum(axis=0)
    for name, cells in zip(columns.names, count.tolist(), strict=True):
        if cells:
            yield f"bridged: {cells} cell(s) of '{name}' without a usable value"
