"""In which of its modes is the plant simulated for a demonstration? In the one that explains it.

A rollout for z needs a plant in some mode, and Algorithm 1 of arXiv 2505.21026 does not say which.
The label would be the simple answer, and one that nobody has. Here a demonstration's own actions
are replayed in every mode of the simulator; the mode in which they lead to what was observed is
taken. Where no observation depends on the mode, it does not matter which is simulated.
"""

import numpy as np
from numpy.typing import NDArray

from trainers.control.plants import PlantSettings, environment, units
from trainers.control.trajectories import Trajectories


def replayed_modes(plant: PlantSettings, data: Trajectories) -> NDArray[np.int64]:
    """The simulator's mode (n,) for each demonstration."""
    apart = [_distance(plant, data, mode) for mode in range(len(plant.levels))]
    return np.asarray(np.argmin(apart, axis=0), np.int64)


def _distance(plant: PlantSettings, data: Trajectories, mode: int) -> NDArray[np.float64]:
    """Mean squared difference (n,) of what was observed and what the replay shows, scaled."""
    quiet = plant.model_copy(update={"noise": 0.0})
    env = environment(quiet, len(data))
    width = np.array(units(plant)[0].width)
    seen, _ = env.reset(seed=0, options={"mode": mode})
    total, valid = np.zeros(len(data)), data.valid
    for t in range(data.x.shape[1]):
        apart = np.square((seen - data.x[:, t]) / width).mean(1)
        total += np.where(valid[:, t], apart, 0.0)
        seen, *_ = env.step(data.u[:, t])
    found: NDArray[np.float64] = total / data.length
    return found
