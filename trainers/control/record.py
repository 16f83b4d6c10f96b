"""What is recorded of an expert? Trajectories in shuffled modes, without a label."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from envs.control import PI, Controller, Reads
from envs.rollout import Episodes, follow
from trainers.control.closed_loop import Floats, Learnt
from trainers.control.networks import GaussianPolicy
from trainers.control.plants import ACTIONS, SECONDS, PlantSettings, environment
from trainers.control.trajectories import Trajectories

NO_Z = np.zeros(0, np.float32)

JUDGED, RECORDED = 1_000_000, 2_000_000
"""Seeds of noise begin here, so that training, judging and demonstrations have none in common."""


@dataclass
class Exploring:
    """A learnt controller with noise on its actions.

    Attributes
    ----------
    policy, seen : as `Learnt` has them.
    scale : of the policy's own deviation.
    seed : of the noise.
    """

    policy: GaussianPolicy
    seen: Sequence[str]
    scale: float
    seed: int

    def reset(self, count: int) -> None:
        """Begin the noise anew."""
        self._mean = Learnt(self.policy, self.seen, NO_Z)
        self._mean.reset(count)
        self._rng = np.random.default_rng([self.seed, 2])

    def act(self, env: Reads) -> Floats:
        """Return actions (n, a)."""
        mean = self._mean.act(env)
        with torch.no_grad():
            sd = (self.policy.log_sd.exp() * self.policy.get_buffer("action_width")).numpy()
        noisy: Floats = mean + self.scale * sd * self._rng.standard_normal(mean.shape)
        return noisy


def controller(
    plant: PlantSettings, policy: GaussianPolicy | None, exploration: float = 0.0, seed: int = 0
) -> Controller:
    """The learnt policy as a controller, or PI where there is none."""
    if policy is None:
        return PI()
    if exploration == 0.0:
        return Learnt(policy, plant.seen, NO_Z)
    return Exploring(policy, plant.seen, exploration, seed)


def record(
    plant: PlantSettings, acting: Controller, count: int, seed: int
) -> tuple[Trajectories, NDArray[np.int64], Episodes]:
    """Record `count` episodes, each mode as often as any other, in random order.

    Returns
    -------
    The trajectories, the mode of each (count,), and the episodes they are taken from.
    """
    rng = np.random.default_rng([seed, 3])
    modes = rng.permutation(np.arange(count) % len(plant.levels))
    env = environment(plant, count)
    episodes = follow(env, acting, plant.samples, seed=seed, mode=modes.tolist())
    space = env.single_action_space
    ids = np.array([f"{i:05d}" for i in range(count)])
    taken = np.clip(episodes.actions, space.low, space.high)  # type: ignore[attr-defined]
    data = Trajectories(
        plant.seen, ACTIONS[plant.kind], SECONDS[plant.kind], ids, episodes.obs,
        taken.astype(np.float32), episodes.length,
    )  # fmt: skip
    return data, episodes.mode, episodes
