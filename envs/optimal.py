"""What is the best that any controller could do? Optimal control by direct multiple shooting.

Needs casadi (pip install 'corymb[bounds]'). `envs.bounds` keeps the answers, so that comparing
with them does not need it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.bioreactor_plant import INTERVALS, U_MAX, Y_START, BioreactorPlant, exact_step
from envs.checks import need
from envs.cstr_plant import SAMPLE, CSTRPlant, operating_point

Floats = NDArray[np.float64]


def casadi() -> Any:
    """Import casadi.

    Raises
    ------
    ImportError : with what to install, where it is missing.
    """
    try:
        import casadi as module
    except ImportError as error:
        raise ImportError("This needs casadi: pip install 'corymb[bounds]'.") from error
    return module


@dataclass(frozen=True)
class Optimum:
    """An optimal control problem's answer.

    Attributes
    ----------
    value : IAE in C s, to be small; or return, to be large.
    actions : (samples, a), what attains it.
    states : (samples + 1, x), what follows from it.
    """

    value: float
    actions: Floats
    states: Floats


def cstr_step(plant: CSTRPlant, state: Any, m: Any, inputs: Any = None, substeps: int = 2) -> Any:
    """Return the state after one sample as a casadi column, by the environments' own scheme."""
    ca = casadi()

    def rates(x: Any) -> Any:
        given = None if inputs is None else ca.vertsplit(inputs)
        return ca.vertcat(*plant.derivatives(ca.vertsplit(x), m, given, ca.exp))

    h = SAMPLE / substeps
    for _ in range(substeps):
        a = rates(state)
        b = rates(state + h / 2 * a)
        c = rates(state + h / 2 * b)
        d = rates(state + h * c)
        state = state + h / 6 * (a + 2 * b + 2 * c + d)
    return state


def cstr_optimum(
    plant: CSTRPlant, setpoint: float, samples: int = 150, start: float = 88.0
) -> Optimum:
    """Smallest IAE (C s) from rest at `start` C, |error| summed after each of `samples` samples.

    The error's modulus is a slack on both sides of it, so the problem is smooth.

    Raises
    ------
    ImportError : without casadi.
    ValueError : where the solver does not converge, or the start is no point of rest.
    """
    ca = casadi()
    problem = ca.Opti()
    x, m = problem.variable(4, samples + 1), problem.variable(1, samples)
    size = problem.variable(1, samples)
    scale = np.array([1.0, 100.0, 100.0, 1.0])
    rest, end = operating_point(plant, start), operating_point(plant, setpoint)
    state, action = ca.MX.sym("x", 4), ca.MX.sym("m")
    scaled = cstr_step(plant, state * scale, action) / scale
    step = ca.Function("step", [state, action], [scaled]).map(samples)
    problem.subject_to(x[:, 0] == rest.state / scale)
    problem.subject_to(x[:, 1:] == step(x[:, :-1], m))
    error = setpoint - scale[1] * x[1, 1:]
    problem.subject_to(size >= error)
    problem.subject_to(size >= -error)
    problem.subject_to(problem.bounded(0, m, 1))
    problem.minimize(ca.sum2(size))
    problem.set_initial(x, np.tile((end.state / scale)[:, None], samples + 1))
    problem.set_initial(m, end.m)
    problem.set_initial(size, 0.1)
    prepare(problem)
    found = solve(problem)
    states = (np.array(found.value(x)).T * scale).reshape(samples + 1, 4)
    iae = float(np.abs(setpoint - states[1:, 1]).sum() * SAMPLE)
    actions = np.clip(np.array(found.value(m)).reshape(samples, 1), 0.0, 1.0)
    return Optimum(iae, actions, states)


def bioreactor_optimum(
    plant: BioreactorPlant, k: float, move: float, seeds: Sequence[int] = (0, 1, 2, 3, 4)
) -> Optimum:
    """Largest return of equation 32 with that weight of moves; the first controls are no move.

    The best of several starts at random controls; they should agree, and `value` is the best.

    Raises
    ------
    ImportError : without casadi.
    ValueError : where the solver does not converge.
    """
    ca = casadi()
    problem = ca.Opti()
    y, u = problem.variable(2, INTERVALS + 1), problem.variable(2, INTERVALS)
    moved = problem.variable(2, INTERVALS - 1)
    state, action = ca.MX.sym("y", 2), ca.MX.sym("u", 2)
    after = exact_step(plant, ca.vertsplit(state), ca.vertsplit(action), k)
    step = ca.Function("step", [state, action], [ca.vertcat(*after)]).map(INTERVALS)
    problem.subject_to(y[:, 0] == np.array(Y_START))
    problem.subject_to(y[:, 1:] == step(y[:, :-1], u))
    difference = u[:, 1:] - u[:, :-1]
    problem.subject_to(ca.vec(moved) >= ca.vec(difference))
    problem.subject_to(ca.vec(moved) >= -ca.vec(difference))
    problem.subject_to(problem.bounded(0, ca.vec(u), U_MAX))
    gained = y[1, -1] - move * ca.sum1(ca.vec(moved))
    problem.minimize(-gained + (0 if move else 1e-12 * ca.sum1(ca.vec(moved))))
    prepare(problem)
    best: Optimum | None = None
    for seed in seeds:
        problem.set_initial(u, np.random.default_rng(seed).uniform(0, U_MAX, (2, INTERVALS)))
        problem.set_initial(y, np.tile([[0.5], [0.3]], INTERVALS + 1))
        found = solve(problem)
        value = float(found.value(gained))
        if best is None or value > best.value:
            actions, states = np.array(found.value(u)).T, np.array(found.value(y)).T
            best = Optimum(value, np.clip(actions, 0, U_MAX), states)
    need(best is not None, "seeds is empty; at least one start is needed.")
    assert best is not None
    return best


def prepare(problem: Any, tolerance: float = 1e-9) -> None:
    """Give an `Opti` problem its solver, IPOPT, silent, to a tolerance; once, for it is slow."""
    quiet = {"ipopt.print_level": 0, "print_time": False, "ipopt.sb": "yes"}
    exact = {"ipopt.tol": tolerance, "ipopt.max_iter": 3000, "expand": True}
    problem.solver("ipopt", {**quiet, **exact})


def solve(problem: Any) -> Any:
    """Solve a prepared problem.

    Raises
    ------
    ValueError : where it does not converge, with the solver's status.
    """
    try:
        return problem.solve()
    except RuntimeError as error:
        status = problem.stats().get("return_status", "no status")
        raise ValueError(f"The optimal control problem was not solved: {status}.") from error
