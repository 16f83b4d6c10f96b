"""What was recorded of a plant in closed loop? Trajectories without labels, as padded arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

Singles = NDArray[np.float32]


@dataclass(frozen=True)
class Trajectories:
    """n trajectories of one plant, of T samples at most.

    Attributes
    ----------
    observations, actions : names of the columns.
    seconds : between samples.
    ids : (n,), what each trajectory is called.
    x : (n, T, k), what was seen before each sample, in the units of the plant.
    u : (n, T, a), the action that followed.
    length : (n,), samples of each trajectory; what stands beyond is zero.

    Raises
    ------
    ValueError : for shapes that do not fit, lengths out of range, or a value that is no number.
    """

    observations: tuple[str, ...]
    actions: tuple[str, ...]
    seconds: float
    ids: NDArray[np.str_]
    x: Singles
    u: Singles
    length: NDArray[np.int64]

    def __post_init__(self) -> None:
        """Hold the shapes against each other."""
        n, t = self.x.shape[:2]
        wanted = {
            "x": (self.x.shape, (n, t, len(self.observations))),
            "u": (self.u.shape, (n, t, len(self.actions))),
            "ids": (self.ids.shape, (n,)),
            "length": (self.length.shape, (n,)),
        }
        for name, (shape, right) in wanted.items():
            if shape != right:
                raise ValueError(f"{name} has the shape {shape}, not {right}.")
        if n and not ((self.length >= 1) & (self.length <= t)).all():
            raise ValueError(f"Lengths must lie between 1 and {t}.")
        if not (np.isfinite(self.x).all() and np.isfinite(self.u).all()):
            raise ValueError("A trajectory holds a value that is not a finite number.")

    def __len__(self) -> int:
        """How many trajectories there are."""
        return len(self.length)

    @property
    def samples(self) -> int:
        """Samples of all trajectories together."""
        return int(self.length.sum())

    @property
    def valid(self) -> NDArray[np.bool_]:
        """(n, T), whether a sample is one, and not what a short trajectory is padded with."""
        inside: NDArray[np.bool_] = np.arange(self.x.shape[1]) < self.length[:, None]
        return inside

    def take(self, rows: ArrayLike) -> "Trajectories":
        """Return the trajectories with these numbers, in this order."""
        i = np.asarray(rows)
        return replace(self, ids=self.ids[i], x=self.x[i], u=self.u[i], length=self.length[i])


def padded(parts: Sequence[Singles]) -> tuple[Singles, NDArray[np.int64]]:
    """Stack arrays (T_i, k) as one (n, T, k) with zeros beyond each one's end, and their lengths.

    Raises
    ------
    ValueError : where there is none.
    """
    if not parts:
        raise ValueError("There is no trajectory.")
    length = np.array([len(part) for part in parts], np.int64)
    stacked = np.zeros((len(parts), int(length.max()), parts[0].shape[1]), np.float32)
    for row, part in zip(stacked, parts, strict=True):
        row[: len(part)] = part
    return stacked, length
