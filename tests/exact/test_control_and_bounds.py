"""The expert's figures, and the bounds: attained, never beaten, and found again by the solver."""

import sys

import numpy as np
import pytest

from envs.bioreactor import BioreactorVectorEnv
from envs.bioreactor_plant import INTERVALS, U_MAX, BioreactorPlant
from envs.bounds import bioreactor_bound, compute, cstr_bound
from envs.control import PI, Plan
from envs.cstr import CSTREnv, CSTRVectorEnv
from envs.cstr_plant import CSTRPlant
from envs.cstr_settings import QUIET, Noise, StepChange
from envs.metrics import Tracking, iae, product, tracking
from envs.optimal import bioreactor_optimum, cstr_optimum
from envs.rollout import follow

MODES = [0, 1]  # 90 and 86


def figures(controller: PI, samples: int = 300) -> Tracking:
    env = CSTRVectorEnv(num_envs=2, noise=QUIET)
    return tracking(follow(env, controller, samples, seed=0, mode=MODES))


@pytest.mark.parametrize(
    ("gain", "integral_time", "area", "over", "settled_2", "settled_5"),
    [
        (2.0, 900, (707, 568), (14.6, 2.9), (1650, 1820), (1020, 480)),
        (2.0, 1000, (704, 604), (11.9, 0.9), (1720, 2150), (980, 500)),
        (1.78, 1140, (750, 761), (5.7, 0.0), (2100, 2950), (1520, 1760)),
        (2.5, 700, (754, 493), (27.8, 11.4), (1970, 1410), (1000, 810)),
        (3.0, 600, (802, 493), (37.7, 9.0), (1930, 1410), (1280, 1210)),
    ],
)
def test_the_experts_figures(
    gain: float, integral_time: float, area: tuple[int, int], over: tuple[float, float],
    settled_2: tuple[int, int], settled_5: tuple[int, int],
) -> None:  # fmt: skip
    found = figures(PI(gain, integral_time))
    np.testing.assert_allclose(found.iae, area, atol=0.8)
    np.testing.assert_allclose(100 * found.overshoot, over, atol=0.06)
    np.testing.assert_equal(found.settling_2, settled_2)
    np.testing.assert_equal(found.settling_5, settled_5)


def test_the_expert_is_the_same_for_one_reactor_and_for_many() -> None:
    many = follow(CSTRVectorEnv(num_envs=5), PI(), 60, seed=3)
    for i in range(5):
        one = follow(CSTREnv(), PI(), 60, seed=3 + i)
        np.testing.assert_equal(one.actions[0], many.actions[i])
        np.testing.assert_equal(one.rewards[0], many.rewards[i])
        np.testing.assert_equal(one.obs[0], many.obs[i])


def test_anti_windup_lets_go_at_once() -> None:
    controller = PI(gain=2.0, integral_time=100.0)
    controller.reset(1)
    for _ in range(500):  # far below the set-point: the valve is at its stop, and nothing is summed
        assert controller.positions(-0.5, 90.0) == 1.0
    assert controller.positions(0.5, 90.0) == pytest.approx(controller.bias)
    with pytest.raises(ValueError, match="reset for 1 rows, not 2"):
        controller.positions([0.5, 0.5], 90.0)
    with pytest.raises(ValueError, match="gain of the controller is 0"):
        PI(gain=0.0)


def test_the_expert_rests_where_a_changed_plant_rests() -> None:
    plant = CSTRPlant(U=3200.0)
    env = CSTRVectorEnv(plant=plant, setpoints=[88.0], noise=QUIET)
    still = follow(env, PI.for_plant(plant), 50, seed=0)
    assert iae(still.fields["T"], 88.0)[0] < 1e-3
    assert iae(follow(env, PI(), 50, seed=0).fields["T"], 88.0)[0] > 5


@pytest.mark.parametrize(("mode", "setpoint", "value"), [(0, 90.0, 357.6), (1, 86.0, 355.7)])
def test_the_reactors_bound_is_attained_and_far_below_the_expert(
    mode: int, setpoint: float, value: float
) -> None:
    bound = cstr_bound(setpoint)
    assert bound.value == pytest.approx(value, abs=0.1)
    assert bound.actions.min() >= 0
    assert bound.actions.max() <= 1
    env = CSTRVectorEnv(setpoints=[setpoint], noise=QUIET)
    best = tracking(follow(env, Plan(bound.actions[None]), 150, seed=0))
    assert best.iae[0] == pytest.approx(bound.value, rel=1e-4)
    assert best.settling_2[0] < 350
    expert = figures(PI()).iae[mode]
    assert expert / bound.value == pytest.approx((1.98, 1.60)[mode], abs=0.01)


@pytest.mark.parametrize(
    ("k", "move", "value", "y2"),
    [
        (0.5, 0.01, 0.82778, 0.84486),
        (0.7, 0.01, 0.67348, 0.73146),
        (0.5, 0.0, 0.90072, 0.90072),
        (0.7, 0.0, 0.74398, 0.74398),
    ],
)
def test_the_bioreactors_bound_is_attained(k: float, move: float, value: float, y2: float) -> None:
    bound = bioreactor_bound(k, move)
    assert (bound.value, bound.y2) == pytest.approx((value, y2), abs=2e-5)
    env = BioreactorVectorEnv(ks=[k], move=move)
    best = follow(env, Plan(bound.actions[None]), INTERVALS, seed=0)
    assert best.returns[0] == pytest.approx(bound.value, abs=1e-5)
    assert product(best)[0] == pytest.approx(bound.y2, abs=1e-4)


@pytest.mark.parametrize(("k", "constant"), [(0.5, 0.8239), (0.7, 0.6345)])
def test_no_constant_nor_random_control_beats_the_bound(k: float, constant: float) -> None:
    grid = np.arange(0, U_MAX + 0.01, 0.05)
    pairs = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 1, 2)
    rng = np.random.default_rng(0)
    near = bioreactor_bound(k).actions + rng.normal(0, 0.3, (2000, INTERVALS, 2))
    for plans, best in ((pairs, constant), (near, None)):
        env = BioreactorVectorEnv(num_envs=len(plans), ks=[k])
        env.reset(seed=0)
        total = np.zeros(len(plans))
        for t in range(INTERVALS):
            actions = plans[:, min(t, plans.shape[1] - 1)]
            total += env.step(actions.astype(np.float32))[1]
        assert total.max() < bioreactor_bound(k).value
        assert best is None or total.max() == pytest.approx(best, abs=1e-4)


def test_what_the_table_lacks_is_said() -> None:
    with pytest.raises(ValueError, match="set-point 89; there is one for 90; 86"):
        cstr_bound(89.0)
    with pytest.raises(ValueError, match=r"k and weight of moves 0\.6, 0\.01; there is one for"):
        bioreactor_bound(0.6)


def test_a_plan_that_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"are \(modes, samples, a\), not \(3, 1\)"):
        Plan(np.zeros((3, 1)))
    with pytest.raises(ValueError, match="The plan has 1 modes; a row is in 1"):
        follow(CSTRVectorEnv(num_envs=2), Plan(np.zeros((1, 3, 1))), 3, seed=0, mode=[0, 1])
    with pytest.raises(ValueError, match="samples is 0"):
        follow(CSTRVectorEnv(), PI(), 0)


def test_without_casadi_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "casadi", None)
    with pytest.raises(ImportError, match=r"pip install 'corymb\[bounds\]'"):
        cstr_optimum(CSTRPlant(), 90.0)


@pytest.mark.slow
def test_the_solver_finds_the_bounds_again() -> None:
    pytest.importorskip("casadi")
    found = compute()
    for row in found["cstr"]:
        assert row["value"] == pytest.approx(cstr_bound(row["setpoint"]).value, rel=0.002)
    for row in found["bioreactor"]:
        kept = bioreactor_bound(row["k"], row["move"])
        assert row["value"] == pytest.approx(kept.value, rel=0.002)
        assert row["y2"] == pytest.approx(kept.y2, rel=0.002)
    longer = cstr_optimum(CSTRPlant(), 90.0, samples=200)
    assert longer.value == pytest.approx(cstr_bound(90.0).value, rel=1e-3)
    easier = bioreactor_optimum(BioreactorPlant(a=0.3), 0.7, 0.01)
    assert easier.value > bioreactor_bound(0.7).value


@pytest.mark.slow
def test_the_oracle_attains_the_bound_and_foresight_pays() -> None:
    pytest.importorskip("casadi")
    from envs.nmpc import NMPC

    env = CSTRVectorEnv(num_envs=2, noise=QUIET)
    episodes = follow(env, NMPC(), 60, seed=0, mode=MODES)
    bounds = [cstr_bound(90.0).value, cstr_bound(86.0).value]
    np.testing.assert_allclose(iae(episodes.fields["T"], [90.0, 86.0]), bounds, rtol=1e-3)

    env = CSTRVectorEnv(num_envs=2, noise=Noise(), changes=[StepChange("Ti", 40, 4.0)])
    areas = []
    for controller in (PI(), NMPC(), NMPC(foresight=True)):
        episodes = follow(env, controller, 60, seed=0, mode=MODES)
        areas.append(iae(episodes.fields["T"], [90.0, 86.0]).sum())
    assert areas[2] < 0.99 * areas[1] < areas[1] < 0.8 * areas[0]
