"""Which arrays hold n rows of a plant, and how are they read, seeded and given a mode?"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from envs.layout import ASKED, EPISODE, LANES, MODE, SEED, Flags, Floats, Singles, Words

Plant = TypeVar("Plant")


@dataclass(frozen=True)
class Port:
    """A box of actions or observations: its bounds, each (k,)."""

    low: Floats
    high: Floats


class Simulation(ABC):
    """n rows of one plant, and what the last sample gave.

    A step writes into the same arrays each time: whoever keeps them copies them.

    Attributes
    ----------
    count : n.
    modes : how many modes there are.
    actions : (n, a), what `advance` reads.
    obs : (n, k); reward : (n,); terminated, truncated : (n,).
    rows : the fields of `names`, in blocks; see `envs.layout`.
    words : (3, n), the random streams.
    """

    names: Mapping[str, int]
    action_port: Port
    obs_port: Port

    def __init__(self, count: int, modes: int, fields: int, actions: int, obs: int) -> None:
        if count < 1:
            raise ValueError(f"num_envs is {count}; it must be at least 1.")
        self.count, self.modes, self._fields = count, modes, fields
        self.rows: Floats = np.zeros(-(-count // LANES) * LANES * fields)
        self.words: Words = np.zeros((3, count), np.uint64)
        self.actions: Singles = np.zeros((count, actions), np.float32)
        self.obs: Singles = np.zeros((count, obs), np.float32)
        self.reward: Floats = np.zeros(count)
        self.terminated: Flags = np.zeros(count, np.bool_)
        self.truncated: Flags = np.zeros(count, np.bool_)
        self.put(ASKED, -1.0)

    @abstractmethod
    def advance(self) -> int:
        """Take one sample with `actions`; return the flags of any row, see `envs.layout`."""

    @abstractmethod
    def restart(self, chosen: Flags) -> None:
        """Begin the next episode of the chosen rows (n,)."""

    def get(self, field: int) -> Floats:
        """Return a copy (n,) of a field."""
        blocks = self.rows.reshape(-1, self._fields, LANES)[:, field]
        return blocks.reshape(-1)[: self.count].copy()

    def put(self, field: int, values: ArrayLike) -> None:
        """Set a field to one value, or to one for each row (n,)."""
        padded = np.zeros(self.rows.size // self._fields)
        padded[: self.count] = values
        padded[self.count :] = padded[self.count - 1]
        self.rows.reshape(-1, self._fields, LANES)[:, field] = padded.reshape(-1, LANES)

    def read(self, name: str) -> Floats:
        """Return a copy (n,) of what is called so.

        Raises
        ------
        ValueError : for a name that is not in `names`.
        """
        if name not in self.names:
            raise ValueError(f"{name!r} is not known; there are {', '.join(sorted(self.names))}.")
        return self.get(self.names[name])

    def copy(self) -> Self:
        """Return the same rows, from here on on their own; their noise will be the same."""
        return deepcopy(self)

    def mode(self) -> NDArray[np.int64]:
        """Return the mode (n,) of each row's episode."""
        return self.get(MODE).astype(np.int64)

    def seed(self, seeds: Sequence[int | None]) -> None:
        """Give rows new seeds; None leaves a row's stream as it is."""
        for i, seed in enumerate(seeds):
            if seed is not None:
                self.words[SEED, i] = seed % 2**64
                self.words[EPISODE, i] = 0

    def ask(self, mode: ArrayLike | None) -> None:
        """Fix the mode of coming episodes, one for all or one a row; None draws it.

        Raises
        ------
        ValueError : for a mode that there is not, or another number of them than rows.
        """
        asked = np.asarray(-1 if mode is None else mode)
        if asked.shape not in ((), (self.count,)) or not np.issubdtype(asked.dtype, np.integer):
            raise ValueError(f"mode must be one integer or {self.count} of them, not {mode!r}.")
        if mode is not None and not ((asked >= 0) & (asked < self.modes)).all():
            raise ValueError(f"mode must lie between 0 and {self.modes - 1}; it is {mode!r}.")
        self.put(ASKED, asked)


def one_each(plant: Plant | Sequence[Plant], count: int) -> tuple[Plant, ...]:
    """One plant a row: the same for all, or those given, one for each of `count` rows.

    Raises
    ------
    ValueError : for another number of plants.
    """
    plants = tuple(plant) if isinstance(plant, Sequence) else (plant,) * count
    if len(plants) != count:
        raise ValueError(f"There are {len(plants)} plants for {count} environments.")
    return plants
