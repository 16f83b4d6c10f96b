"""Figures of episodes on series whose figures are plain to see."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from envs.control import PI
from envs.cstr import CSTRVectorEnv
from envs.cstr_settings import QUIET, Safety
from envs.metrics import (
    iae,
    overshoot,
    product,
    ratio,
    settling_time,
    steady_offset,
    tracking,
    valve_travel,
    violations,
)
from envs.rollout import follow

UP = [[89.0, 91.0, 90.5, 90.02, 90.0]]  # from 88 to 90
DOWN = [[87.0, 85.0, 85.5, 85.98, 86.0]]  # from 88 to 86, its mirror image


def test_iae_and_offset() -> None:
    np.testing.assert_allclose(iae(UP, 90.0), [10 * 2.52])
    np.testing.assert_allclose(iae(UP + DOWN, [90.0, 86.0], sample=1.0), [2.52, 2.52])
    np.testing.assert_allclose(steady_offset(UP, 90.0, last=2), [0.01])


def test_overshoot_is_in_the_steps_direction() -> None:
    np.testing.assert_allclose(overshoot(UP + DOWN, 88.0, [90.0, 86.0]), [0.5, 0.5])
    np.testing.assert_allclose(overshoot([[88.5, 89.5]], 88.0, 90.0), [0.0])


def test_settling_is_the_last_time_outside() -> None:
    both = UP + DOWN
    np.testing.assert_allclose(settling_time(both, 88.0, [90.0, 86.0], 0.02), [30, 30])
    np.testing.assert_allclose(settling_time(both, 88.0, [90.0, 86.0], 0.3), [20, 20])
    np.testing.assert_allclose(settling_time(both, 88.0, [90.0, 86.0], 0.001), [40, 40])
    assert settling_time([[89.0, 90.0, 91.0]], 88.0, 90.0, 0.05)[0] == np.inf
    assert settling_time([[90.0, 90.0]], 88.0, 90.0, 0.05)[0] == 0


def test_travel_violations_and_ratios() -> None:
    np.testing.assert_allclose(valve_travel([[0.5, 0.2, 0.4]], 0.3), [0.7])
    np.testing.assert_allclose(violations(UP, 89.5, 90.9), [0.4])
    np.testing.assert_allclose(violations(UP), [0.0])
    np.testing.assert_allclose(ratio([707.0, 568.0], [353.5, 568.0]), [2, 1])


def test_tracking_gathers_them_from_recorded_episodes() -> None:
    env = CSTRVectorEnv(num_envs=2, noise=QUIET)
    episodes = follow(env, PI(), 100, seed=0, mode=[0, 1])
    figures = tracking(episodes)
    t = episodes.fields["T"]
    np.testing.assert_equal(figures.iae, iae(t, [90.0, 86.0]))
    np.testing.assert_equal(figures.overshoot, overshoot(t, 88.0, [90.0, 86.0]))
    np.testing.assert_equal(figures.settling_5, settling_time(t, 88.0, [90.0, 86.0], 0.05))
    travel = valve_travel(episodes.fields["m"], episodes.start["m"])
    np.testing.assert_equal(figures.valve_travel, travel)


def test_an_episode_cut_short_is_not_judged() -> None:
    env = CSTRVectorEnv(num_envs=2, safety=Safety(high=89.0))
    episodes = follow(env, PI(), 100, seed=0, mode=[0, 1])
    assert episodes.length[0] < episodes.length[1] == 100
    assert np.isnan(episodes.fields["T"][0, episodes.length[0] :]).all()
    assert (episodes.rewards[0, episodes.length[0] :] == 0).all()
    with pytest.raises(ValueError, match="temperature holds values that are not finite"):
        tracking(episodes)


@pytest.mark.parametrize(
    ("figure", "sentence"),
    [
        (lambda: iae([1.0, 2.0], 1.0), r"temperature has the shape \(2,\)"),
        (lambda: iae([[1.0, 2.0]], [1.0, 2.0]), "setpoint must be one finite number or 1 of them"),
        (lambda: overshoot(UP, 90.0, 90.0), "set-point is its start"),
        (lambda: steady_offset(UP, 90.0), "last is 30; there are 5 samples"),
        (lambda: ratio(1.0, 0.0), "reference must be positive; it is 0.0"),
    ],
)
def test_series_that_cannot_be_judged(figure: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        figure()


def test_a_batch_that_is_not_finished_has_no_product() -> None:
    from envs.bioreactor import BioreactorVectorEnv
    from envs.control import Plan

    plan = Plan(np.ones((2, 1, 2)))
    episodes = follow(BioreactorVectorEnv(num_envs=2), plan, 19, seed=0)
    with pytest.raises(ValueError, match="has not reached its end"):
        product(episodes)
