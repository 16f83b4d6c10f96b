"""What happened in an episode under a controller? One episode in each row, recorded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.control import Controller
from envs.interface import ProcessEnv, ProcessVectorEnv
from envs.layout import Floats
from envs.simulation import Simulation

Mode = int | Sequence[int] | None


@dataclass(frozen=True)
class Episodes:
    """One episode in each of n rows, all of `samples` samples at most.

    Attributes
    ----------
    start : fields before the first sample, by name, each (n,).
    fields : fields after each sample, by name, each (n, samples); NaN after a row's end.
    obs : (n, samples, k), what the controller could see before each sample.
    actions : (n, samples, a), what it answered.
    rewards : (n, samples); 0 after a row's end.
    mode, length : (n,).
    """

    start: Mapping[str, Floats]
    fields: Mapping[str, Floats]
    obs: NDArray[np.float32]
    actions: NDArray[np.float32]
    rewards: Floats
    mode: NDArray[np.int64]
    length: NDArray[np.int64]

    @property
    def returns(self) -> Floats:
        """Summed reward of each row, (n,)."""
        total: Floats = self.rewards.sum(axis=1)
        return total


def follow(
    env: ProcessEnv | ProcessVectorEnv,
    controller: Controller,
    samples: int,
    *,
    seed: int | None = None,
    mode: Mode = None,
) -> Episodes:
    """Run one episode in each row from a reset, at most that many samples, and record it.

    Parameters
    ----------
    env : reset here; what it is left in is no particular state.
    seed, mode : as `reset` takes them; mode holds for later episodes too.

    Raises
    ------
    ValueError : for fewer than one sample, or what `reset` refuses.
    """
    if samples < 1:
        raise ValueError(f"samples is {samples}; it must be at least 1.")
    simulation = env.simulation
    obs, _ = env.reset(seed=seed, options={"mode": mode})
    controller.reset(simulation.count)
    record = _Record(simulation, samples)
    for t in range(samples):
        actions = np.asarray(controller.act(simulation), np.float32)
        seen = np.asarray(obs).reshape(simulation.count, -1)
        obs, *_ = env.step(actions.reshape(env.action_space.shape or ()))
        record.add(t, seen, actions)
        if not record.running.any():
            break
    return record.done()


class _Record:
    def __init__(self, simulation: Simulation, samples: int) -> None:
        n, (k, a) = simulation.count, (simulation.obs.shape[1], simulation.actions.shape[1])
        self._simulation = simulation
        self._start = {name: simulation.read(name) for name in simulation.names}
        self._mode = simulation.mode()
        self._fields = {name: np.full((n, samples), np.nan) for name in simulation.names}
        self._obs = np.zeros((n, samples, k), np.float32)
        self._actions = np.zeros((n, samples, a), np.float32)
        self._rewards = np.zeros((n, samples))
        self._length = np.zeros(n, np.int64)
        self.running = np.ones(n, np.bool_)

    def add(self, t: int, obs: NDArray[np.float32], actions: NDArray[np.float32]) -> None:
        here, simulation = self.running, self._simulation
        for name, kept in self._fields.items():
            kept[here, t] = simulation.read(name)[here]
        self._obs[here, t], self._actions[here, t] = obs[here], actions[here]
        self._rewards[here, t] = simulation.reward[here]
        self._length[here] += 1
        self.running = here & ~(simulation.terminated | simulation.truncated)

    def done(self) -> Episodes:
        kept: dict[str, Any] = {
            "obs": self._obs, "actions": self._actions, "rewards": self._rewards,
        }  # fmt: skip
        return Episodes(self._start, self._fields, mode=self._mode, length=self._length, **kept)
