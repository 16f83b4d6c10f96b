"""What the reactor shows, rewards and refuses, by its settings."""

import math
from typing import Any

import numpy as np
import pytest

from envs.control import PI
from envs.cstr import CSTREnv, CSTRVectorEnv
from envs.cstr_settings import (
    HIDDEN,
    PAPER,
    QUIET,
    CSTRSettings,
    Noise,
    Reward,
    Safety,
    StepChange,
)
from envs.rollout import follow

EVERYTHING = ("CA", "T", "TC", "b", "m", "setpoint", "error", "integral")


def test_observations_are_the_fields_named_in_order() -> None:
    env = CSTREnv(observe=EVERYTHING)
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(obs)
    for _ in range(10):
        obs, *_ = env.step(np.array([0.4], np.float32))
        assert obs.tolist() == [np.float32(env.read(name)) for name in EVERYTHING]
    assert obs.dtype == np.float32


def test_the_papers_observation_tells_the_mode_and_the_hidden_one_does_not() -> None:
    assert PAPER == ("CA", "T", "TC", "b", "error")
    for observe, same in ((PAPER, False), (HIDDEN, True)):
        seen = []
        for mode in (0, 1):
            env = CSTREnv(observe=observe, mode=mode, noise=QUIET)
            env.reset(seed=0)
            seen.append(env.step(np.array([0.3], np.float32))[0])
        assert (seen[0] == seen[1]).all() == same
        assert len(seen[0]) == len(observe)


def test_scaled_observations_are_the_same_in_units_of_their_size() -> None:
    plain, scaled = (CSTREnv(observe=EVERYTHING, scaled=s) for s in (False, True))
    plain.reset(seed=0)
    scaled.reset(seed=0)
    for m in np.linspace(0, 1, 30):
        x = plain.step(np.array([m], np.float32))[0]
        z = scaled.step(np.array([m], np.float32))[0]
    centre = [1.13, 88, 50, 0.4, 0.25, 88, 0, 0]
    width = [0.05, 2, 10, 0.1, 0.1, 2, 2, 500]
    np.testing.assert_allclose(z, (x - centre) / width, atol=1e-4)
    assert abs(z).max() < 10
    assert scaled.observation_space.contains(z)


def test_the_reward_is_the_weighted_sum_that_it_says() -> None:
    weights = Reward(absolute=0.7, square=0.3, move=2.0, bonus=1.5, band=1.99)
    env = CSTRVectorEnv(num_envs=2, reward=weights, noise=QUIET)
    episodes = follow(env, PI(), 120, seed=0, mode=[0, 1])
    e = episodes.fields["setpoint"] - episodes.fields["T"]
    m = np.column_stack([episodes.start["m"], episodes.fields["m"]])
    expected = -0.7 * abs(e) - 0.3 * e**2 - 2.0 * abs(np.diff(m)) + 1.5 * (abs(e) < 1.99)
    np.testing.assert_allclose(episodes.rewards, expected, atol=1e-12)
    np.testing.assert_allclose(episodes.fields["error"], e, atol=0)
    np.testing.assert_allclose(episodes.fields["integral"], 10 * np.cumsum(e, axis=1), atol=1e-9)
    assert 0 < (abs(e) < 1.99).mean() < 1


def test_the_default_reward_is_the_documented_proposal() -> None:
    env = CSTREnv(noise=QUIET, mode=0)
    env.reset(seed=0)
    before = env.read("m")
    _, reward, *_ = env.step(np.array([0.5], np.float32))
    e, moved = env.read("error"), 0.5 - before
    assert reward == pytest.approx(-(e / 2 + 0.1 * (e / 2) ** 2 + 0.5 * moved), abs=1e-12)


def test_increments_add_up_and_stop_at_the_stops() -> None:
    env = CSTREnv(action="increment", increment=0.2)
    env.reset(seed=0)
    assert env.action_space.high.tolist() == [np.float32(0.2)]  # type: ignore[attr-defined]
    m = env.read("m")
    for step in (0.1, -0.05, 0.2, 0.2, 0.2, 0.2, -0.1):
        env.step(np.array([step], np.float32))
        m = min(max(m + float(np.float32(step)), 0.0), 1.0)
        assert env.read("m") == pytest.approx(m, abs=1e-12)
    assert m == pytest.approx(0.9, abs=1e-6)


def test_positions_are_clipped_and_the_rate_is_limited() -> None:
    env = CSTREnv(safety=Safety(rate=0.05))
    env.reset(seed=0)
    m = env.read("m")
    for _ in range(40):
        env.step(np.array([7.0], np.float32))
        assert env.read("m") == pytest.approx(min(m + 0.05, 1.0), abs=1e-12)
        m = env.read("m")
    assert m == 1.0


def test_a_trip_terminates_and_costs() -> None:
    env = CSTREnv(safety=Safety(low=87.5), reward=Reward(0, 0, 0, 0, trip=9.0), noise=QUIET)
    env.reset(seed=0)
    for _ in range(300):
        _, reward, terminated, truncated, _ = env.step(np.zeros(1, np.float32))
        assert terminated == (env.read("T") < 87.5)
        assert reward == (-9.0 if terminated else 0.0)
        assert not truncated
        if terminated:
            break
    assert terminated
    assert env.read("sample") < 100


def test_a_trip_in_the_last_sample_is_a_trip_and_no_truncation() -> None:
    for count in (1, 2):
        env = CSTRVectorEnv(num_envs=count, safety=Safety(high=88.001), samples=1)
        env.reset(seed=0)
        actions = np.array([[1.0], [0.0]], np.float32)[:count]
        _, _, terminated, truncated, _ = env.step(actions)
        assert terminated.tolist() == [True, False][:count]
        assert truncated.tolist() == [False, True][:count]


def test_noise_is_the_seeds_and_not_the_actions() -> None:
    drifts = []
    for m in (0.1, 0.6):
        env = CSTREnv(noise=Noise(0.05, 0.0))
        env.reset(seed=4)
        kept = []
        for _ in range(20):
            env.step(np.array([m], np.float32))
            kept.append(env.read("drift"))
        drifts.append(kept)
    assert drifts[0] == drifts[1]
    assert len(set(drifts[0])) == 20


def test_foresight_is_what_comes() -> None:
    env = CSTRVectorEnv(num_envs=3, changes=[StepChange("Ti", 6, 2.0)], samples=12)
    env.reset(seed=0)
    simulation: Any = env.simulation
    for _ in range(2):
        env.step(np.full((3, 1), 0.3, np.float32))
    foreseen = simulation.foresee(15)
    for t in range(10):
        env.step(np.full((3, 1), 0.9, np.float32))
        np.testing.assert_equal(simulation.inputs(), foreseen[:, t])
    np.testing.assert_equal(foreseen[:, 10:], np.repeat(foreseen[:, 9:10], 5, axis=1))
    assert (foreseen[:, 3, 1] == 66).all()
    assert (foreseen[:, 4, 1] == 68).all()


def test_step_changes_cannot_turn_the_feed_round() -> None:
    up, down = StepChange("F", 50, 0.01), StepChange("F", 60, -0.015)
    CSTREnv(changes=[down, up])
    with pytest.raises(ValueError, match=r"The step changes of F would bring it to -0\.0075"):
        CSTREnv(changes=[down])
    with pytest.raises(ValueError, match="The step changes of CAi would bring it to -0"):
        CSTREnv(changes=[StepChange("CAi", 0, -3.0)])


def test_reading_what_there_is_not() -> None:
    env = CSTREnv()
    with pytest.raises(ValueError, match="'temperature' is not known; there are CA, CAi, F"):
        env.read("temperature")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"observe": ("T", "temp")}, "observe is 'temp', which is not known"),
        ({"observe": ("T", "T")}, "it must hold at least one name, and each once"),
        ({"observe": ()}, "it must hold at least one name, and each once"),
        ({"setpoints": ()}, "setpoints is empty"),
        ({"setpoints": (90.0, math.nan)}, "A set-point is nan"),
        ({"mode": 2}, "mode is 2; it must lie between 0 and 1"),
        ({"samples": 0}, "samples is 0"),
        ({"action": "velocity"}, "action is 'velocity', which is not known"),
        ({"increment": 0.0}, "increment is 0.0"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        CSTRSettings(**settings)


@pytest.mark.parametrize(
    ("make", "arguments", "sentence"),
    [
        (Noise, (-0.1,), "sd of the noise is -0.1"),
        (Noise, (0.1, 1.0), "correlation of the noise is 1.0"),
        (StepChange, ("Fc", 3, 1.0), "input of a step change is 'Fc'"),
        (StepChange, ("F", -1, 1.0), "sample of a step change is -1"),
        (StepChange, ("F", 1, math.inf), "size of a step change is inf"),
        (Reward, (-1.0,), "absolute of the reward is -1.0"),
        (Safety, (0.0,), "rate of the safety limits is 0.0"),
        (Safety, (0.1, 90.0, 80.0), "The trip limits 90.0 and 80.0 are not in order"),
    ],
)
def test_parts_of_settings_that_cannot_be(make: Any, arguments: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make(*arguments)
