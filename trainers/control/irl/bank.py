"""What is the discriminator shown? Steps of demonstrations and of rollouts, disturbed or not."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envs.interface import ProcessVectorEnv
from trainers.control.inference import PooledEncoder
from trainers.control.irl.discriminator import Steps
from trainers.control.networks import GaussianPolicy, log_density
from trainers.control.rl.rollout import Contexts, Rollout, roll_out
from trainers.control.trajectories import Trajectories

CORRELATION = 0.97
"""Of a disturbance between neighbouring samples, so that the plant has time to go somewhere."""


@dataclass(frozen=True)
class Demonstrated:
    """Demonstrations as tensors: x (n, T, k), scaled actions a (n, T, a), valid (n, T)."""

    x: Tensor
    a: Tensor
    valid: Tensor

    @classmethod
    def of(cls, data: Trajectories, policy: GaussianPolicy) -> "Demonstrated":
        """Trajectories with their actions as the policy scales them."""
        a = policy.scaled_action(torch.from_numpy(data.u))
        return cls(torch.from_numpy(data.x), a, torch.from_numpy(data.valid))

    def take(self, rows: Tensor) -> "Demonstrated":
        """Those with these numbers."""
        return Demonstrated(self.x[rows], self.a[rows], self.valid[rows])

    def contexts(self, q: PooledEncoder, generator: torch.Generator) -> Tensor:
        """z (n, c) drawn from q(z | tau)."""
        with torch.no_grad():
            return q.draw_code(q(self.x, self.a, self.valid), generator)

    def steps(self, z: Tensor, policy: GaussianPolicy) -> Steps:
        """Every step that has a next observation."""
        kept = self.valid[:, :-1] & self.valid[:, 1:]
        x, a = self.x[:, :-1][kept], self.a[:, :-1][kept]
        beside = z[:, None].expand(-1, kept.shape[1], -1)[kept]
        with torch.no_grad():
            log_prob = log_density(policy(torch.cat([x, beside], -1)), policy.log_sd, a)
        return Steps(x, self.x[:, 1:][kept], a, beside, log_prob)


def rollout_steps(rollout: Rollout, context: int) -> Steps:
    """Every valid step of a rollout, under the policy that took it, row by row."""
    obs, valid = torch.from_numpy(rollout.obs), torch.from_numpy(rollout.valid)
    a = torch.from_numpy(rollout.actions)
    log_prob = log_density(torch.from_numpy(rollout.mean), torch.from_numpy(rollout.log_sd), a)
    k = obs.shape[-1] - context
    x, z = obs[..., :k], obs[:, :-1, k:]
    return Steps(x[:, :-1][valid], x[:, 1:][valid], a[valid], z[valid], log_prob[valid])


def disturbed_rollout(
    env: ProcessVectorEnv,
    policy: GaussianPolicy,
    contexts: Contexts,
    samples: int,
    largest: float,
    seed: int,
) -> Rollout:
    """Run a policy while its actions are pushed about, each row as hard as it draws.

    Parameters
    ----------
    largest : deviation of the pushes in scaled actions; a row's is between none and this.
    """
    offset = pushes(len(contexts.mode), samples, policy.log_sd.numel(), largest, seed)
    pushed = Contexts(contexts.z, contexts.mode, offset)
    return roll_out(env, policy, pushed, samples, seed)


def pushes(rows: int, samples: int, actions: int, largest: float, seed: int) -> NDArray[np.float32]:
    """Autoregressive disturbances (rows, samples, actions), stationary from the start."""
    rng = np.random.default_rng([seed, 5])
    sd = largest * rng.random((rows, 1))
    found = np.zeros((rows, samples, actions))
    now = rng.standard_normal((rows, actions))
    for t in range(samples):
        found[:, t] = sd * now
        fresh = rng.standard_normal((rows, actions))
        now = CORRELATION * now + (1 - CORRELATION**2) ** 0.5 * fresh
    return found.astype(np.float32)
