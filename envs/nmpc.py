"""The oracle: nonlinear model predictive control of the reactor, with or without foresight.

Needs casadi (pip install 'corymb[bounds]'). It knows the plant, sees the whole state, and each
sample minimises the summed |error| over its horizon; it is what a controller can be compared with
where noise and disturbances leave no bound in closed form.
"""

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.checks import need
from envs.control import Reads
from envs.cstr_plant import CSTRPlant, operating_point
from envs.cstr_simulation import CSTRSimulation
from envs.optimal import casadi, cstr_step, prepare, solve

Floats = NDArray[np.float64]
_SCALE = np.array([1.0, 100.0, 100.0, 1.0])


class NMPC:
    """A controller for the reactor, to be followed as `envs.control.Controller`.

    Parameters
    ----------
    plant : its model; of all rows.
    horizon : samples that it looks ahead, with a free valve position in each.
    foresight : True tells it the inputs (CAi with its noise, Ti, Tci, F) of all coming samples;
        False has it take those of the last sample to last.
    move : weight of |dm|, in C of error summed over samples.

    Raises
    ------
    ImportError : without casadi.
    ValueError : for a horizon below 2 or a negative weight; where a problem is not solved.
    """

    def __init__(
        self,
        plant: CSTRPlant | None = None,
        horizon: int = 60,
        *,
        foresight: bool = False,
        move: float = 0.01,
    ) -> None:
        need(horizon >= 2, f"horizon is {horizon}; it must be at least 2.")
        need(move >= 0, f"move is {move}; it must not be negative.")
        self.horizon, self.foresight = horizon, foresight
        self._problem = _Problem(plant or CSTRPlant(), horizon, move)
        self._plans: list[Floats | None] = []

    def reset(self, count: int) -> None:
        """Forget the last solutions, from which the next are sought."""
        self._plans = [None] * count

    def act(self, env: Reads) -> Floats:
        """Return actions (n, 1) for reactors whose action is the valve's position.

        Raises
        ------
        ValueError : for anything but reactors, or another number of them than `reset` was told.
        """
        if not isinstance(env, CSTRSimulation) or env.count != len(self._plans):
            raise ValueError(
                f"The oracle was reset for {len(self._plans)} reactors, not for {env}."
            )
        states = np.column_stack([env.read(name) for name in ("CA", "T", "TC", "b")])
        setpoints, valves = env.read("setpoint"), env.read("m")
        if self.foresight:
            inputs = env.foresee(self.horizon)
        else:
            inputs = np.repeat(env.inputs()[:, None], self.horizon, axis=1)
        for i, plan in enumerate(self._plans):
            self._plans[i] = self._problem.plan(
                states[i], float(valves[i]), float(setpoints[i]), inputs[i], plan
            )
        return np.array([[plan[0]] for plan in self._plans if plan is not None])


class _Problem:
    """The optimal control problem over a horizon, built once and solved with changing numbers."""

    def __init__(self, plant: CSTRPlant, horizon: int, move: float) -> None:
        ca = casadi()
        self.plant, self.horizon = plant, horizon
        self._problem = p = ca.Opti()
        self._x, self._m = p.variable(4, horizon + 1), p.variable(1, horizon)
        self._size, self._moved = p.variable(1, horizon), p.variable(1, horizon)
        self._start, self._valve, self._setpoint = p.parameter(4), p.parameter(), p.parameter()
        self._inputs = p.parameter(4, horizon)
        state, valve, inputs = ca.MX.sym("x", 4), ca.MX.sym("m"), ca.MX.sym("inputs", 4)
        after = cstr_step(plant, state * _SCALE, valve, inputs, substeps=1) / _SCALE
        self._step = ca.Function("step", [state, valve, inputs], [after]).expand()
        step = self._step.map(horizon)
        p.subject_to(self._x[:, 0] == self._start)
        p.subject_to(self._x[:, 1:] == step(self._x[:, :-1], self._m, self._inputs))
        error = self._setpoint - _SCALE[1] * self._x[1, 1:]
        difference = self._m - ca.horzcat(self._valve, self._m[:, :-1])
        for size, of in ((self._size, error), (self._moved, difference)):
            p.subject_to(size >= of)
            p.subject_to(size >= -of)
        p.subject_to(p.bounded(0, self._m, 1))
        p.minimize(ca.sum2(self._size) + move * ca.sum2(self._moved))
        prepare(p, tolerance=1e-7)

    def plan(
        self, state: Floats, valve: float, setpoint: float, inputs: Floats, last: Floats | None
    ) -> Floats:
        """Return valve positions (horizon,) from a state, and inputs (horizon, 4)."""
        p = self._problem
        for parameter, value in (
            (self._start, state / _SCALE), (self._valve, valve), (self._setpoint, setpoint),
            (self._inputs, inputs.T),
        ):  # fmt: skip
            p.set_value(parameter, value)
        guess = self._guess(valve, setpoint, last)
        path = self._path(state / _SCALE, guess, inputs)
        p.set_initial(self._m, guess)
        p.set_initial(self._x, path)
        p.set_initial(self._size, np.abs(setpoint - _SCALE[1] * path[1, 1:]) + 1e-3)
        p.set_initial(self._moved, np.abs(np.diff(guess, prepend=valve)) + 1e-3)
        found: Any = solve(p)
        positions: Floats = np.clip(np.array(found.value(self._m)).reshape(-1), 0.0, 1.0)
        return positions

    def _guess(self, valve: float, setpoint: float, last: Floats | None) -> Floats:
        """Valve positions (horizon,) to start from: the last plan, or what holds the set-point."""
        if last is not None:
            return np.append(last[1:], last[-1])
        with suppress(ValueError):  # it cannot be held, and the solver starts from the valve as is
            valve = operating_point(self.plant, setpoint).m
        return np.full(self.horizon, valve)

    def _path(self, state: Floats, valves: Floats, inputs: Floats) -> Floats:
        """Where those valve positions would lead, scaled, (4, horizon + 1)."""
        path = [state]
        for valve, given in zip(valves, inputs, strict=True):
            path.append(np.array(self._step(path[-1], valve, given)).reshape(4))
        return np.array(path).T
