"""The reactor against LSODA, against its own balances, and at rest."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from envs.control import PI
from envs.cstr import CSTREnv, CSTRVectorEnv
from envs.cstr_plant import SAMPLE, CSTRPlant, gain, operating_point
from envs.cstr_settings import QUIET, Noise, StepChange
from envs.rollout import follow

Floats = NDArray[np.float64]
STATE = ("CA", "T", "TC", "b")
PLANTS = {
    "default": CSTRPlant(),
    "first order": CSTRPlant(reaction_order=1),
    "richer feed": CSTRPlant(CAi=3.1),
    "fouled": CSTRPlant(U=3000.0),
    "slow transmitter": CSTRPlant(tauT=60.0),
    "other sizes": CSTRPlant(V=6.0, Vc=2.2, rho=18.0, cpc=4000.0, alpha=40.0, Fcmax=0.022),
}


def walk(env: CSTREnv, actions: Floats) -> tuple[Floats, Floats, Floats]:
    """States (n + 1, 4), inputs (n, 4) and valve positions (n,) of an episode."""
    states, inputs, valves = [[env.read(name) for name in STATE]], [], []
    for action in actions:
        env.step(np.array([action], np.float32))
        states.append([env.read(name) for name in STATE])
        inputs.append([env.read("CAi") + env.read("drift"), *map(env.read, ("Ti", "Tci", "F"))])
        valves.append(env.read("m"))
    return np.array(states), np.array(inputs), np.array(valves)


def wandering(samples: int = 300) -> Floats:
    """Valve positions that move about, but not by more than valves do."""
    steps = np.random.default_rng(4).normal(0, 0.03, samples)
    return np.clip(0.257 + 0.2 * np.sin(np.arange(samples) / 25) + np.cumsum(steps) / 8, 0, 1)


def thrown(samples: int = 300) -> Floats:
    """A valve thrown from stop to stop."""
    return np.repeat(np.random.default_rng(5).integers(0, 2, samples // 5), 5).astype(np.float64)


@pytest.mark.parametrize("valve", ["wandering", "thrown"])
@pytest.mark.parametrize("name", PLANTS)
def test_an_episode_is_that_of_lsoda(name: str, valve: str) -> None:
    plant = PLANTS[name]
    env = CSTREnv(plant=plant, noise=QUIET)
    env.reset(seed=0)
    states, inputs, valves = walk(env, wandering() if valve == "wandering" else thrown())
    tolerance = 5e-8 if valve == "wandering" else 1e-6
    x = states[0]
    for t, m in enumerate(valves):
        x = solve_ivp(
            lambda _, x, m=m, t=t: plant.derivatives(x, m, inputs[t]),
            (0, SAMPLE), x, method="LSODA", rtol=1e-11, atol=1e-12,
        ).y[:, -1]  # fmt: skip
        np.testing.assert_allclose(states[t + 1], x, rtol=tolerance, err_msg=f"sample {t}")
    assert np.ptp(states[:, 1]) > 2  # it was an episode worth comparing


@pytest.mark.parametrize("mode", [0, 1])
def test_the_experts_episode_is_that_of_lsoda_to_a_millionth(mode: int) -> None:
    episodes = follow(CSTRVectorEnv(noise=QUIET), PI(), 300, seed=0, mode=mode)
    x = np.array([episodes.start[name][0] for name in STATE])
    for t, m in enumerate(episodes.fields["m"][0]):
        x = solve_ivp(
            lambda _, x, m=m: CSTRPlant().derivatives(x, m),
            (0, SAMPLE), x, method="LSODA", rtol=1e-11, atol=1e-12,
        ).y[:, -1]  # fmt: skip
        here = np.array([episodes.fields[name][0, t] for name in STATE])
        np.testing.assert_allclose(here, x, rtol=0, atol=1e-6, err_msg=f"sample {t}")


def test_noise_and_step_changes_enter_the_physics() -> None:
    changes = [StepChange("CAi", 5, 0.1), StepChange("Ti", 9, -3.0), StepChange("Tci", 9, 2.0),
               StepChange("F", 20, 0.0005), StepChange("Ti", 30, 1.0)]  # fmt: skip
    env = CSTREnv(noise=Noise(0.05, 0.5), changes=changes)
    env.reset(seed=1)
    states, inputs, valves = walk(env, wandering(60))
    plant = CSTRPlant()
    noise = inputs[:, 0] - plant.CAi - 0.1 * (np.arange(60) >= 5)
    assert 0.03 < noise.std() < 0.08
    np.testing.assert_allclose(inputs[[8, 9, 29, 30], 1], [66, 63, 63, 64], rtol=1e-12)
    np.testing.assert_allclose(inputs[[8, 9], 2], [27, 29])
    np.testing.assert_allclose(inputs[[19, 20], 3], [0.0075, 0.0080])
    for t in range(60):
        x = solve_ivp(
            lambda _, x, t=t: plant.derivatives(x, valves[t], inputs[t]),
            (0, SAMPLE), states[t], method="LSODA", rtol=1e-11, atol=1e-12,
        ).y[:, -1]  # fmt: skip
        np.testing.assert_allclose(states[t + 1], x, rtol=0, atol=1e-6)


def integral(
    plant: CSTRPlant, states: Floats, valves: Floats, flux: Callable[[Floats, float], float]
) -> float:
    """Integrate a flux over an episode: Simpson's rule on cubic Hermite midpoints."""
    total = 0.0
    for t, m in enumerate(valves):
        a, b = states[t], states[t + 1]
        rate_a, rate_b = (np.array(plant.derivatives(x, m)) for x in (a, b))
        middle = (a + b) / 2 + SAMPLE / 8 * (rate_a - rate_b)
        total += SAMPLE / 6 * (flux(a, m) + 4 * flux(middle, m) + flux(b, m))
    return total


@pytest.mark.parametrize("name", ["default", "first order", "other sizes"])
def test_what_flows_in_and_out_is_what_is_stored(name: str) -> None:
    p = PLANTS[name]
    env = CSTREnv(plant=p, noise=QUIET)
    env.reset(seed=0)
    states, _, valves = walk(env, wandering())
    stored = states[-1] - states[0]

    def reacting(x: Floats, m: float) -> float:
        return p.V * p.reaction_constant(x[1]) * math.pow(x[0], p.reaction_order)

    def feeding(x: Floats, m: float) -> float:
        return p.F * (p.CAi - float(x[0]))

    reacted = integral(p, states, valves, reacting)
    fed = integral(p, states, valves, feeding)
    assert abs(fed - reacted - p.V * stored[0]) < 1e-6 * reacted

    def heating(x: Floats, m: float) -> float:
        coolant = p.Fcmax * p.alpha ** (-m) * p.rho_c * p.cpc * (x[2] - p.Tci)
        return float(p.F * p.rho * p.cp * (p.Ti - x[1]) - coolant)

    warmed = p.tank_heat * stored[1] + p.jacket_heat * stored[2]
    released = -p.dHr * (fed - p.V * stored[0])  # by the component balance, without the kinetics
    assert abs(integral(p, states, valves, heating) + released - warmed) < 1e-6 * released


@pytest.mark.parametrize(
    ("order", "temperature", "ca", "tc", "m"),
    [
        (2, 88, 1.1298, 50.48, 0.2569),
        (2, 90, 1.1206, 54.85, 0.3172),
        (2, 86, 1.1392, 46.12, 0.1887),
        (1, 88, 1.2147, 53.75, 0.3136),
    ],
)
def test_points_of_rest(order: int, temperature: float, ca: float, tc: float, m: float) -> None:
    plant = CSTRPlant(reaction_order=order)
    rest = operating_point(plant, temperature)
    np.testing.assert_allclose([rest.CA, rest.m], [ca, m], atol=6e-5)
    np.testing.assert_allclose([rest.TC, 20 * rest.b + 80], [tc, temperature], atol=6e-3)
    rates = np.array(plant.derivatives(rest.state, rest.m))
    np.testing.assert_allclose(rates, 0, atol=1e-15)


@pytest.mark.parametrize("name", PLANTS)
def test_what_rests_stays(name: str) -> None:
    plant = PLANTS[name]
    env = CSTREnv(plant=plant, noise=QUIET)
    env.reset(seed=0)
    m = operating_point(plant, 88.0).m
    states, _, _ = walk(env, np.full(300, m))
    np.testing.assert_allclose(states[-1], states[0], rtol=0, atol=3e-6)  # m arrives as float32


def test_a_closing_valve_warms_and_the_loop_is_stable() -> None:
    plant = CSTRPlant()
    assert gain(plant, 88.0) == pytest.approx(31.4, abs=0.05)
    rest = operating_point(plant, 88.0)
    columns = []
    for step in np.diag([1e-5, 1e-3, 1e-3, 1e-5]):
        up, down = (np.array(plant.derivatives(rest.state + s * step, rest.m)) for s in (1, -1))
        columns.append((up - down) / (2 * step.sum()))
    eigenvalues = np.linalg.eigvals(np.array(columns).T)
    times = sorted(-1 / eigenvalues.real)
    np.testing.assert_allclose(times, [20, 146, 266, 648], rtol=0.005)


def test_each_row_can_have_a_plant_of_its_own() -> None:
    plants = list(PLANTS.values())
    many = CSTRVectorEnv(num_envs=len(plants), plant=plants)
    many.reset(seed=20)
    ones = [CSTREnv(plant=plant) for plant in plants]
    for i, env in enumerate(ones):
        env.reset(seed=20 + i)
    for m in wandering(50):
        action = np.full((len(plants), 1), m, np.float32)
        obs, *_ = many.step(action)
        for i, env in enumerate(ones):
            assert (env.step(action[i])[0] == obs[i]).all()
    assert np.unique(obs[:, 1]).size == len(plants)


def test_plants_that_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"U of the reactor is -1\.0; it must be positive"):
        CSTRPlant(U=-1.0)
    with pytest.raises(ValueError, match="CAi of the reactor is nan, not a finite number"):
        CSTRPlant(CAi=math.nan)
    with pytest.raises(ValueError, match="reaction_order is 3; it must be 1 or 2"):
        CSTRPlant(reaction_order=3)
    with pytest.raises(ValueError, match=r"alpha of the valve is 0\.9"):
        CSTRPlant(alpha=0.9)
    with pytest.raises(ValueError, match="No valve position holds the reactor at 130 C"):
        operating_point(CSTRPlant(), 130.0)
    with pytest.raises(ValueError, match="No valve position holds the reactor at 88 C"):
        CSTREnv(plant=replace(CSTRPlant(), CAi=0.5))
    with pytest.raises(ValueError, match="There are 2 plants for 3 environments"):
        CSTRVectorEnv(num_envs=3, plant=[CSTRPlant(), CSTRPlant()])
