"""What the bioreactor shows, rewards and refuses, by its settings."""

from typing import Any

import numpy as np
import pytest

from envs.bioreactor import BioreactorEnv, BioreactorVectorEnv
from envs.bioreactor_plant import INTERVALS, BioreactorPlant
from envs.bioreactor_settings import PAPER, TIMED, BioreactorSettings
from envs.control import Plan
from envs.metrics import product
from envs.rollout import follow


def test_the_reward_is_equation_32() -> None:
    env = BioreactorVectorEnv(num_envs=6)
    plan = np.random.default_rng(0).integers(-16, 96, (2, INTERVALS, 2)) / 16  # exact in float32
    episodes = follow(env, Plan(plan), INTERVALS, seed=1)
    u = np.clip(plan[episodes.mode], 0, 5)
    moves = np.zeros((6, INTERVALS))
    moves[:, 1:] = abs(np.diff(u, axis=1)).sum(axis=2)
    expected = -0.01 * moves
    expected[:, -1] += episodes.fields["y2"][:, -1]
    np.testing.assert_allclose(episodes.rewards, expected, atol=1e-14)
    np.testing.assert_allclose(product(episodes), episodes.fields["y2"][:, -1])
    assert set(episodes.mode) == {0, 1}
    assert (episodes.length == INTERVALS).all()
    assert (episodes.fields["k"][:, 0] == np.array([0.5, 0.7])[episodes.mode]).all()


def test_an_episode_is_twenty_intervals_and_then_terminates() -> None:
    env = BioreactorEnv()
    obs, _ = env.reset(seed=0)
    assert obs.tolist() == [1, 0, 1]
    for t in range(1, INTERVALS + 1):
        obs, _, terminated, truncated, _ = env.step(np.array([5, 5], np.float32))
        assert obs[2] == pytest.approx(1 - t / INTERVALS, abs=1e-6)
        assert env.observation_space.contains(obs)
        assert terminated == (t == INTERVALS)
        assert not truncated


def test_observations_are_the_fields_named_in_order() -> None:
    names = ("u2", "y2", "u1", "k", "y1", "to_go")
    env = BioreactorEnv(observe=names)
    env.reset(seed=0)
    obs, *_ = env.step(np.array([1.5, 9.0], np.float32))
    assert obs.tolist() == [np.float32(env.read(name)) for name in names]
    assert (env.read("u1"), env.read("u2")) == (1.5, 5.0)
    assert (*PAPER, "to_go") == TIMED
    assert BioreactorEnv(observe=PAPER).reset()[0].tolist() == [1, 0]


def test_each_row_can_have_a_plant_of_its_own() -> None:
    env = BioreactorVectorEnv(num_envs=2, plant=[BioreactorPlant(), BioreactorPlant(b=0.5)])
    env.reset(seed=0)
    env.step(np.array([[2, 0], [2, 0]], np.float32))
    y2 = env.read("y2")
    assert y2[1] == pytest.approx(y2[0] / 2, rel=1e-12)
    with pytest.raises(ValueError, match="There are 2 plants for 1 environments"):
        BioreactorEnv(plant=[BioreactorPlant(), BioreactorPlant()])


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"ks": ()}, "ks is empty"),
        ({"ks": (-1.0,)}, "k of the bioreactor is -1.0"),
        ({"mode": -1}, "mode is -1"),
        ({"observe": ("y3",)}, "observe is 'y3'"),
        ({"move": -0.1}, "move is -0.1"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        BioreactorSettings(**settings)
