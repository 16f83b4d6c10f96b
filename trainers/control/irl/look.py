"""What does a learnt reward want? Its value where the reactor rests, and once the valve moves."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from envs.cstr_plant import CSTRPlant, operating_point
from trainers.control.irl.transfer import FrozenReward
from trainers.control.plants import PlantSettings, environment

Floats = NDArray[np.float64]

REACH = 4.0
"""C on either side of the set-point."""

HELD = 12
"""Samples (2 min) for which a valve is held before the reward is averaged."""


@dataclass(frozen=True)
class Look:
    """What a reward says of the reactor in one mode.

    Attributes
    ----------
    error : (n,), set-point less temperature, C.
    resting : (n,), reward at rest there.
    valve : (m,), positions.
    moved : (m, n), mean reward over `HELD` samples from rest, the valve at that position.
    """

    error: Floats
    resting: Floats
    valve: Floats
    moved: Floats

    @property
    def peak(self) -> float:
        """Error at which the reward would rather rest, C."""
        return float(self.error[self.resting.argmax()])


def look(reward: FrozenReward, plant: PlantSettings, mode: int) -> Look:
    """Hold a reward against the plant, without noise."""
    quiet = plant.model_copy(update={"noise": 0.0})
    error = np.linspace(-REACH, REACH, 41)
    valve = np.linspace(0.0, 1.0, 21)
    resting, moved = np.zeros(len(error)), np.zeros((len(valve), len(error)))
    for i, e in enumerate(error):
        start = plant.levels[mode] - e
        rest = operating_point(CSTRPlant(), start).m
        u = np.concatenate([[rest], valve])
        env = environment(quiet, len(u), start=start)
        rewards = _held(reward, env, u[:, None].astype(np.float32), mode)
        resting[i], moved[:, i] = rewards[0], rewards[1:]
    return Look(error, resting, valve, moved)


def _held(reward: FrozenReward, env: Any, u: NDArray[np.float32], mode: int) -> NDArray[np.float64]:
    """Mean reward (n,) of a valve that stands still from the reset on."""
    seen, _ = env.reset(seed=0, options={"mode": mode})
    z = torch.from_numpy(reward.codes[mode]).expand(len(u), -1)
    a = reward.scaled_action(torch.from_numpy(u))
    total = np.zeros(len(u))
    for _ in range(HELD):
        after, *_ = env.step(u)
        with torch.no_grad():
            total += reward(torch.from_numpy(seen), torch.from_numpy(after), z, a).numpy()
        seen = after.copy()
    return total / HELD
