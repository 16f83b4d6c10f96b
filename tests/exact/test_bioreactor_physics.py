"""The bioreactor against LSODA, against what its equations conserve, and kernel against symbols."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from envs.bioreactor import BioreactorEnv
from envs.bioreactor_plant import INTERVALS, WIDTH, BioreactorPlant, exact_step

PLANTS = {
    "default": BioreactorPlant(),
    "least": BioreactorPlant(a=0.0, b=0.0, d=0.0),
    "greedy": BioreactorPlant(a=1.0, b=2.0, d=3.0),
}


def controls(seed: int = 0) -> NDArray[np.float32]:
    """Random controls (20, 2), corners among them."""
    u = np.random.default_rng(seed).uniform(0, 5, (INTERVALS, 2)).astype(np.float32)
    u[2:6] = [[0, 0], [5, 0], [0, 5], [5, 5]]
    return u


@pytest.mark.parametrize("k", [0.5, 0.7])
@pytest.mark.parametrize("name", PLANTS)
def test_an_episode_is_that_of_lsoda_and_of_the_formula(name: str, k: float) -> None:
    plant = PLANTS[name]
    env = BioreactorEnv(plant=plant, ks=[k])
    env.reset(seed=0)
    y = np.array([1.0, 0.0])
    formula: tuple[float, float] = (1.0, 0.0)
    for u in controls():
        env.step(u)
        now = np.array([env.read("y1"), env.read("y2")])
        y = solve_ivp(
            lambda _, y, u=u: plant.derivatives(y, u.astype(float), k),
            (0, WIDTH), y, method="LSODA", rtol=1e-12, atol=1e-14,
        ).y[:, -1]  # fmt: skip
        formula = exact_step(plant, formula, u.astype(float), k)
        np.testing.assert_allclose(now, y, rtol=0, atol=1e-8)
        np.testing.assert_allclose(now, formula, rtol=0, atol=1e-14)


def test_without_loss_and_feed_what_y1_loses_y2_gains() -> None:
    env = BioreactorEnv(plant=BioreactorPlant(a=0.0))
    env.reset(seed=0)
    for u in controls():
        env.step(np.array([u[0], 0.0], np.float32))
        assert env.read("y1") + env.read("y2") == pytest.approx(1.0, abs=1e-14)
    assert env.read("y1") < 0.2


def test_fed_alone_nothing_is_used_up() -> None:
    env = BioreactorEnv(ks=[0.5])
    env.reset(seed=0)
    for _ in range(INTERVALS):
        env.step(np.array([0.0, 2.0], np.float32))
    assert env.read("y1") == pytest.approx(3.0, abs=1e-12)  # 1 + u2 t
    assert env.read("y2") == pytest.approx(-2.0, abs=1e-12)  # -k u2 (t + u2 t^2 / 2)


def test_plants_that_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"a of the bioreactor is 1\.5; it must lie betw"):
        BioreactorPlant(a=1.5)
    with pytest.raises(ValueError, match="d of the bioreactor is nan"):
        BioreactorPlant(d=float("nan"))
