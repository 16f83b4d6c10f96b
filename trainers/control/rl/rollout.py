"""What did a policy do? One episode in each row of a vector environment, as arrays."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch

from envs.interface import ProcessVectorEnv
from trainers.control.networks import GaussianPolicy

Singles = NDArray[np.float32]


@dataclass(frozen=True)
class Contexts:
    """What a rollout's rows are told, and how they are simulated.

    Attributes
    ----------
    z : (n, c), appended to what is seen; c is 0 for a policy without context.
    mode : (n,), the simulator's mode in each row.
    offset : (n, T, a) or None, added to the scaled actions that the plant gets, but not to those
        that are recorded as the policy's.
    """

    z: Singles
    mode: NDArray[np.int64]
    offset: Singles | None = None

    def part(self, index: int, parts: int) -> "Contexts":
        """Return the share of one of several env runners."""
        rows = np.array_split(np.arange(len(self.mode)), parts)[index]
        offset = None if self.offset is None else self.offset[rows]
        return Contexts(self.z[rows], self.mode[rows], offset)


@dataclass(frozen=True)
class Rollout:
    """n episodes of T samples at most; what follows a row's last valid sample is zero.

    Attributes
    ----------
    obs : (n, T + 1, k + c), seen before each sample and after the last one, with z.
    actions : (n, T, a), scaled, as the policy drew them; the plant clips what it gets.
    taken : (n, T, a), scaled, as the plant got them, within its limits.
    mean : (n, T, a), of the policy that drew them; log_sd : (a,), of the same.
    rewards : (n, T), the environment's.
    valid : (n, T); terminated : (n,), whether the last valid sample ended it for good.
    mode : (n,).
    """

    obs: Singles
    actions: Singles
    taken: Singles
    mean: Singles
    log_sd: Singles
    rewards: Singles
    valid: NDArray[np.bool_]
    terminated: NDArray[np.bool_]
    mode: NDArray[np.int64]

    @property
    def steps(self) -> int:
        """Valid samples of all rows."""
        return int(self.valid.sum())

    def to_batch(self) -> MultiAgentBatch:
        """One row of RLlib's batch for each episode, so that several learners share them out."""
        columns = {**vars(self), "log_sd": np.tile(self.log_sd, (len(self.mode), 1))}
        return MultiAgentBatch({DEFAULT_MODULE_ID: SampleBatch(columns)}, env_steps=self.steps)

    @classmethod
    def from_batch(cls, batch: Mapping[str, Any]) -> "Rollout":
        """Read such a batch back."""
        columns = {name: np.asarray(batch[name]) for name in cls.__dataclass_fields__}
        return cls(**{**columns, "log_sd": columns["log_sd"][0]})

    @classmethod
    def joined(cls, parts: "list[Rollout]") -> "Rollout":
        """Put the rows of several together; their policy must be the same."""
        first = vars(parts[0])
        columns = {name: np.concatenate([vars(p)[name] for p in parts]) for name in first}
        return cls(**{**columns, "log_sd": parts[0].log_sd})


def roll_out(
    env: ProcessVectorEnv,
    policy: GaussianPolicy,
    contexts: Contexts,
    samples: int,
    seed: int,
) -> Rollout:
    """Run the policy, with its noise, for one episode in each row of the environment.

    Parameters
    ----------
    seed : of the environment's rows and of the policy's noise.

    Raises
    ------
    ValueError : where the policy's actions are not numbers.
    """
    n, a = env.num_envs, policy.log_sd.numel()
    noise = np.random.default_rng([seed, 1]).standard_normal((samples, n, a), np.float32)
    log_sd = policy.log_sd.detach().numpy().copy()
    drawn = torch.from_numpy(noise * np.exp(log_sd))
    seen, _ = env.reset(seed=seed, options={"mode": contexts.mode})
    k, c = seen.shape[1], contexts.z.shape[1]
    obs = np.zeros((n, samples + 1, k + c), np.float32)
    obs[:, :, k:] = contexts.z[:, None]
    obs[:, 0, :k] = seen
    actions, mean, taken = (np.zeros((n, samples, a), np.float32) for _ in range(3))
    rewards = np.zeros((n, samples), np.float32)
    valid = np.zeros((n, samples), np.bool_)
    terminated = np.zeros(n, np.bool_)
    going = np.ones(n, np.bool_)
    low, high = env.single_action_space.low, env.single_action_space.high  # type: ignore[attr-defined]
    centre = policy.get_buffer("action_centre").numpy()
    width = policy.get_buffer("action_width").numpy()
    with torch.no_grad():
        for t in range(samples):
            here = policy(torch.from_numpy(obs[:, t]))
            mean[:, t] = here.numpy()
            actions[:, t] = (here + drawn[t]).numpy()
            asked = actions[:, t]
            if contexts.offset is not None:
                asked = asked + contexts.offset[:, t]
            given = np.clip(centre + width * asked, low, high)
            taken[:, t] = (given - centre) / width
            seen, reward, ended, cut, _ = env.step(given)
            obs[:, t + 1, :k] = seen
            rewards[:, t], valid[:, t] = reward, going
            terminated |= ended & going
            going &= ~(ended | cut)
            if not going.any():
                break
    _blank(valid, actions, mean, taken, rewards)
    return Rollout(
        obs, actions, taken, mean, log_sd, rewards, valid, terminated, contexts.mode.copy()
    )


def _blank(valid: NDArray[np.bool_], *arrays: Singles) -> None:
    """Zero what belongs to a row's next episode."""
    if not valid.all():
        for array in arrays:
            array[~valid] = 0.0
