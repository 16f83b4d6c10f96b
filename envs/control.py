"""How do the controllers that a plant would have run it: PI on the transmitter, and a fixed plan?

A controller answers with one action a row; one row is the case n = 1.
"""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from envs.checks import number
from envs.cstr_plant import SAMPLE, CSTRPlant, operating_point, sensed

Floats = NDArray[np.float64]


class Reads(Protocol):
    """What a controller needs of an environment: its fields by name, as floats or (n,)."""

    def read(self, name: str) -> ArrayLike:
        """Return what is called so."""
        ...


class Controller(Protocol):
    """Anything that can be followed through an episode; see `envs.rollout.follow`."""

    def reset(self, count: int) -> None:
        """Forget everything, and expect that many rows."""
        ...

    def act(self, env: Reads) -> Floats:
        """Return actions (n, a) for the environment as it is now."""
        ...


@dataclass
class PI:
    """Proportional-integral control in position form, on the transmitter's output b.

        u = bias + gain (e + I),  e = (Tset - 80)/20 - b,  then  I += e * 10 s / integral_time

    clipped to [0, 1]. While u is clipped, e is summed only where it leads back inside
    (conditional anti-windup). With the defaults it is the expert of the demonstrations.

    Attributes
    ----------
    gain : Kc, m per b.
    integral_time : s.
    bias : m at the start's rest; see `for_plant`.

    Raises
    ------
    ValueError : for a gain or integral time that is not positive, or a bias outside [0, 1].
    """

    gain: float = 2.0
    integral_time: float = 900.0
    bias: float = field(default_factory=lambda: operating_point(CSTRPlant(), 88.0).m)
    _sum: Floats = field(default_factory=lambda: np.zeros(1), repr=False, compare=False)

    def __post_init__(self) -> None:
        """Hold the settings against their ranges."""
        number("gain of the controller", self.gain, 1e-9, 1e9)
        number("integral_time of the controller", self.integral_time, 1e-9, 1e12)
        number("bias of the controller", self.bias, 0.0, 1.0)

    @classmethod
    def for_plant(cls, plant: CSTRPlant, start: float = 88.0) -> "PI":
        """Return the default controller with the bias of a plant's rest at `start` C."""
        return cls(bias=operating_point(plant, start).m)

    def reset(self, count: int) -> None:
        """Begin with empty integrals."""
        self._sum = np.zeros(count)

    def positions(self, b: ArrayLike, setpoint: ArrayLike) -> Floats:
        """Return m (n,) for transmitter outputs b and set-points in C, and move the integrals on.

        Raises
        ------
        ValueError : for another number of rows than `reset` was told.
        """
        error = np.atleast_1d(sensed(np.asarray(setpoint, np.float64)) - np.asarray(b))
        if error.shape != self._sum.shape:
            rows = self._sum.size
            raise ValueError(f"The controller was reset for {rows} rows, not {error.size}.")
        wanted = self.bias + self.gain * (error + self._sum)
        outward = ((wanted > 1.0) & (error > 0.0)) | ((wanted < 0.0) & (error < 0.0))
        self._sum = self._sum + np.where(outward, 0.0, error * (SAMPLE / self.integral_time))
        return np.clip(wanted, 0.0, 1.0)

    def act(self, env: Reads) -> Floats:
        """Return actions (n, 1) for a reactor whose action is the valve's position."""
        return self.positions(env.read("b"), env.read("setpoint"))[:, None]


@dataclass
class Plan:
    """Open-loop control: a given action for each sample, by the row's mode.

    Attributes
    ----------
    actions : (modes, samples, a). After the last one it is repeated.
    """

    actions: Floats

    def __post_init__(self) -> None:
        """Hold the shape."""
        self.actions = np.asarray(self.actions, np.float64)
        if self.actions.ndim != 3 or 0 in self.actions.shape:
            raise ValueError(f"A plan's actions are (modes, samples, a), not {self.actions.shape}.")

    def reset(self, count: int) -> None:
        """Nothing is kept between samples."""

    def act(self, env: Reads) -> Floats:
        """Return actions (n, a)."""
        mode = np.atleast_1d(np.asarray(env.read("mode"))).astype(int)
        sample = np.atleast_1d(np.asarray(env.read("sample"))).astype(int)
        if mode.max(initial=0) >= len(self.actions):
            raise ValueError(f"The plan has {len(self.actions)} modes; a row is in {mode.max()}.")
        chosen: Floats = self.actions[mode, np.minimum(sample, self.actions.shape[1] - 1)]
        return chosen
