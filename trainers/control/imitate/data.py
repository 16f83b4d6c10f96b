"""Which demonstrations are there, of which plant, and what is known of their modes to judge by?"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UsageError
from trainers.control.demonstrations import parquet
from trainers.control.demonstrations.account import Account
from trainers.control.demonstrations.open import open_demonstrations
from trainers.control.demonstrations.settings import PARQUET_SUFFIXES
from trainers.control.demonstrations.truth import read_truth
from trainers.control.imitate.config import Config
from trainers.control.imitate.fits import check_modes, check_plant, plant_of
from trainers.control.plants import PlantSettings
from trainers.control.record import RECORDED, controller, record
from trainers.control.trajectories import Trajectories


@dataclass(frozen=True)
class Demonstrations:
    """Trajectories, and what their file says beside them.

    Attributes
    ----------
    data : without labels.
    plant : the simulated plant they are of, or None for a plant that cannot be simulated.
    mode : (n,), true modes to judge by, or None where nobody knows.
    account : what became of the file's rows; None for what was recorded on the spot.
    """

    data: Trajectories
    plant: PlantSettings | None
    mode: NDArray[np.int64] | None
    account: Account | None = None

    def split(self, share: float, seed: int) -> "tuple[Demonstrations, Demonstrations]":
        """Trajectories to learn from and those held out, at least one of each."""
        n = len(self.data)
        order = np.random.default_rng([seed, 4]).permutation(n)
        kept = min(max(1, round(share * n)), n - 1)
        return self._take(np.sort(order[kept:])), self._take(np.sort(order[:kept]))

    def _take(self, rows: NDArray[np.int64]) -> "Demonstrations":
        mode = None if self.mode is None else self.mode[rows]
        return Demonstrations(self.data.take(rows), self.plant, mode)


def demonstrations(config: Config) -> Demonstrations:
    """Read the file of the configuration, or record PI.

    Raises
    ------
    UsageError : for a file that cannot be used, or too few trajectories for the modes.
    """
    found = _recorded(config) if config.data.path is None else _read(config)
    least = max(2, config.clone.modes)
    if len(found.data) < least:
        raise UsageError(
            f"There are {len(found.data)} trajectories for {config.clone.modes} modes; at least "
            f"{least} are needed: give more, or lower clone.modes"
        )
    if found.mode is not None:
        learnt = [found.split(config.clone.held_out, seed)[0].mode for seed in config.seeds]
        known = [mode for mode in learnt if mode is not None]
        count = int(found.mode.max()) + 1 if found.plant is None else len(found.plant.levels)
        check_modes(found.mode, known, count)
    return found


def _recorded(config: Config) -> Demonstrations:
    acting = controller(config.recorded, None)
    data, mode, _ = record(
        config.recorded, acting, config.data.trajectories, RECORDED + config.seeds[0]
    )
    return Demonstrations(data, config.recorded, mode)


def _read(config: Config) -> Demonstrations:
    path = Path(str(config.data.path))
    data, account = open_demonstrations(config.data)
    ours = path.suffix.lower() in PARQUET_SUFFIXES
    said = parquet.header(path) if ours else None
    plant = None
    if said is not None and said.plant is not None:
        plant = plant_of(path, said.plant)
        check_plant(path, data, plant)
    data = data.take(np.arange(min(len(data), config.data.trajectories)))
    if config.data.truth is None:
        return Demonstrations(data, plant, None, account)
    known = read_truth(Path(config.data.truth))
    origins = account.origins[: len(data)]  # a trajectory that was cut has the mode of the whole
    lacking = [name for name in origins if name not in known]
    if lacking:
        raise UsageError(
            f"{config.data.truth} does not say the mode of trajectory {lacking[0]} and "
            f"{len(lacking) - 1} more; leave data.truth out, or give the file that belongs to "
            f"{path.name}"
        )
    mode = np.array([known[name] for name in origins])
    return Demonstrations(data, plant, mode, account)
