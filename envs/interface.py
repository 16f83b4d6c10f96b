"""Gymnasium's two interfaces, one environment and many, over one compiled simulation.

Autoreset of the many is NEXT_STEP: the step after an episode's last one ignores that row's action,
begins the row's next episode, and returns its first observation with reward 0. Row i of a reset
with seed s draws what a single environment draws that is reset with seed s + i.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from envs.layout import NOT_A_NUMBER, TERMINATED, TRUNCATED, Flags, Floats, Singles
from envs.simulation import Port, Simulation


def box(port: Port, count: int | None = None) -> spaces.Box:
    """Return a box of float32 (k,), or of (count, k)."""
    low, high = port.low.astype(np.float32), port.high.astype(np.float32)
    if count is not None:
        low, high = np.tile(low, (count, 1)), np.tile(high, (count, 1))
    return spaces.Box(low, high, dtype=np.float32)


class ProcessEnv(gymnasium.Env[Singles, Singles]):
    """One environment. info holds the episode's `mode`.

    `reset(options={"mode": 1})` fixes the mode from then on, `{"mode": None}` has it drawn again.
    `read(name)` returns a field as a float.

    Raises
    ------
    ValueError : for an action that is not a number or has the wrong shape, an episode stepped
        beyond its end, a mode or option that there is not.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.action_space = box(simulation.action_port)
        self.observation_space = box(simulation.obs_port)
        self._actions = simulation.actions  # whole arrays: a copied environment keeps its own
        self._obs = simulation.obs
        self._reward = simulation.reward
        self._advance = simulation.advance
        self._over = True
        self._seeded = False
        self._mode = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Singles, dict[str, Any]]:
        """Begin an episode; see the class."""
        super().reset(seed=seed)
        _options(self.simulation, options, ("mode",))
        if seed is None and not self._seeded:
            seed = int(self.np_random.integers(2**63))
        self._seeded = True
        self.simulation.seed([seed])
        self.simulation.restart(np.ones(1, np.bool_))
        self._over = False
        self._mode = int(self.simulation.mode()[0])
        return self._obs[0].copy(), {"mode": self._mode}

    def step(self, action: Singles) -> tuple[Singles, float, bool, bool, dict[str, Any]]:
        """Take one sample; see the class."""
        if self._over:
            raise ValueError("This episode is over, or has not begun: call reset() first.")
        self._actions[0] = action
        answer = self._advance()
        if answer:
            if answer == NOT_A_NUMBER:
                raise ValueError(f"The action {action} is not a number.")
            self._over = True
        return (
            self._obs[0].copy(),
            self._reward.item(),
            answer == TERMINATED,
            answer == TRUNCATED,
            {"mode": self._mode},
        )

    def read(self, name: str) -> float:
        """Return what the simulation calls so."""
        return float(self.simulation.read(name)[0])


class ProcessVectorEnv(VectorEnv[Singles, Singles, NDArray[Any]]):
    """Many environments in one call a step. infos holds the array `mode` (n,).

    `reset(options=...)` knows `mode`, one integer, one for each row, or None for drawn; it holds
    for all later episodes, and `reset_mask` (n,), the rows to reset. `read(name)` returns a field.

    Raises
    ------
    ValueError : for actions that are not numbers or not (n, a), a step before the first reset, a
        mode or option that there is not, another number of seeds than rows.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.num_envs = simulation.count
        self.metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_action_space = box(simulation.action_port)
        self.single_observation_space = box(simulation.obs_port)
        self.action_space = box(simulation.action_port, self.num_envs)
        self.observation_space = box(simulation.obs_port, self.num_envs)
        self._seeded = False
        self._begun = False
        self._every = np.ones(self.num_envs, np.bool_)
        self._every.flags.writeable = False
        self._mode = simulation.mode()
        self._ended = False

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Singles, dict[str, Any]]:
        """Begin episodes; see the class."""
        seed = int(seed) if isinstance(seed, np.integer) else seed
        super().reset(seed=seed if isinstance(seed, int) else None)
        _options(self.simulation, options, ("mode", "reset_mask"))
        chosen = self._chosen(options)
        self._seed(seed, chosen)
        self.simulation.restart(chosen)
        self._begun = True
        self._mode = self.simulation.mode()
        return self.simulation.obs.copy(), self._infos()

    def step(self, actions: Singles) -> tuple[Singles, Floats, Flags, Flags, dict[str, Any]]:
        """Take one sample in every row; see the class."""
        simulation = self.simulation
        actions = np.asarray(actions)
        if actions.shape != simulation.actions.shape:
            raise ValueError(
                f"Actions have the shape {actions.shape}, not {simulation.actions.shape}."
            )
        if not self._begun:
            raise ValueError("No episode has begun: call reset() first.")
        simulation.actions[:] = actions
        answer = simulation.advance()
        if answer == NOT_A_NUMBER:
            rows = np.flatnonzero(np.isnan(simulation.actions).any(axis=1))
            raise ValueError(f"The actions of rows {rows.tolist()} are not numbers.")
        if self._ended:  # some rows have begun an episode, in which the mode may be another
            self._mode = simulation.mode()
        self._ended = answer != 0
        return (
            simulation.obs.copy(),
            simulation.reward.copy(),
            simulation.terminated.copy(),
            simulation.truncated.copy(),
            self._infos(),
        )

    def read(self, name: str) -> Floats:
        """Return what the simulation calls so, a copy (n,)."""
        return self.simulation.read(name)

    def _infos(self) -> dict[str, Any]:
        return {"mode": self._mode.copy(), "_mode": self._every}

    def _chosen(self, options: Mapping[str, Any] | None) -> Flags:
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_)))
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            raise ValueError(f"reset_mask must be {self.num_envs} truth values.")
        if not (self._begun or mask.all()):
            raise ValueError("The first reset must begin an episode in every row.")
        return mask

    def _seed(self, seed: int | Sequence[int | None] | None, chosen: Flags) -> None:
        n = self.num_envs
        if seed is None and not self._seeded:
            seed = [int(s) for s in self.np_random.integers(2**63, size=n)]
        seeds: list[int | None] = [None] * n
        if isinstance(seed, int):
            seeds = [seed + i for i in range(n)]
        elif seed is not None:
            seeds = [None if s is None else int(s) for s in seed]
        if len(seeds) != n:
            raise ValueError(f"There are {len(seeds)} seeds for {n} environments.")
        self._seeded = True
        self.simulation.seed([s if c else None for s, c in zip(seeds, chosen, strict=True)])


def _options(
    simulation: Simulation, options: Mapping[str, Any] | None, known: Sequence[str]
) -> None:
    """Check a reset's options, and set the mode if it is among them."""
    for name in options or {}:
        if name not in known:
            raise ValueError(f"reset has no option {name!r}; it has {', '.join(known)}.")
    if options and "mode" in options:
        simulation.ask(options["mode"])
