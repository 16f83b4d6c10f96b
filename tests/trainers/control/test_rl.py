"""Rollouts, advantages and updates on RLlib's stack, against hand computation and second routes."""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import ray
import torch
from torch.distributions import Normal, kl_divergence

from cluster.session import Session
from envs.cstr_settings import Safety
from trainers.control.networks import GaussianPolicy, Units
from trainers.control.plants import PlantSettings, environment, units
from trainers.control.rl.advantages import advantages
from trainers.control.rl.algorithm import PolicyOptimisation, configure, optimise
from trainers.control.rl.learner import divergence
from trainers.control.rl.module import module_spec
from trainers.control.rl.rollout import Contexts, Rollout, roll_out
from trainers.control.rl.settings import PolicySettings

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

PLANT = PlantSettings(observe=("T", "b", "error"))
SMALL = PolicySettings(iterations=4, rows=6, samples=12, minibatch=24, epochs=3, hidden=(8,))


def policy(plant: PlantSettings = PLANT, context: int = 0, log_sd: float = -1.0) -> GaussianPolicy:
    torch.manual_seed(0)
    return GaussianPolicy(*units(plant), context, hidden=(8,), log_sd=log_sd)


def rows(n: int, context: int = 0) -> Contexts:
    z = np.arange(n * context, dtype=np.float32).reshape(n, context)
    return Contexts(z, np.arange(n) % 2)


def made(settings: PolicySettings = SMALL, seed: int = 3, **options: Any) -> PolicyOptimisation:
    spec = module_spec(units(PLANT)[0], Units([0.3], [0.2]), 0, settings.hidden, -0.5)
    algorithm: PolicyOptimisation = configure(settings, PLANT, spec, seed, **options).build_algo()
    return algorithm


@pytest.fixture
def algorithm(ray_session: Session) -> Iterator[PolicyOptimisation]:
    ray_session.ensure()
    found = made()
    yield found
    found.stop()


def test_advantages_are_the_sums_they_stand_for() -> None:
    """A_t = sum of (gamma lambda)^l delta_{t + l}, row by row, with loops."""
    generator = torch.Generator().manual_seed(0)
    rewards = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    values = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    length, ended, gamma, trace = [5, 3, 4], [False, True, False], 0.9, 0.8
    valid = torch.arange(5) < torch.tensor(length)[:, None]
    found = advantages(rewards, values, valid, torch.tensor(ended), gamma, trace)
    for i, n in enumerate(length):
        for t in range(5):
            total = 0.0
            for step in range(t, n):
                last = step == n - 1 and ended[i]
                after = 0.0 if last else gamma * float(values[i, step + 1])
                delta = float(rewards[i, step]) + after - float(values[i, step])
                total += (gamma * trace) ** (step - t) * delta
            assert float(found[i, t]) == pytest.approx(total, abs=1e-12)


def test_divergence_is_that_of_torch() -> None:
    mean, new = torch.randn(7, 2), torch.randn(7, 2)
    sd, new_sd = torch.tensor([0.2, -1.0]), torch.tensor([-0.4, 0.3])
    exact = kl_divergence(Normal(mean, sd.exp()), Normal(new, new_sd.exp())).sum(-1)
    torch.testing.assert_close(divergence(mean, sd, new, new_sd), exact)


def test_a_rollout_is_what_the_environment_gives_for_its_actions() -> None:
    """The recorded actions, replayed, give the recorded observations and rewards."""
    found = roll_out(environment(PLANT, 4), policy(), rows(4), 9, seed=5)
    env = environment(PLANT, 4)
    seen, infos = env.reset(seed=5, options={"mode": [0, 1, 0, 1]})
    assert infos["mode"].tolist() == found.mode.tolist() == [0, 1, 0, 1]
    unscaled = policy().unscaled(torch.from_numpy(found.actions)).numpy()
    for t in range(9):
        np.testing.assert_array_equal(found.obs[:, t], seen)
        seen, reward, *_ = env.step(unscaled[:, t])
        np.testing.assert_allclose(found.rewards[:, t], reward, rtol=1e-6)
    assert found.steps == 36
    assert not found.terminated.any()


def test_z_stands_behind_what_is_seen_all_along() -> None:
    found = roll_out(environment(PLANT, 3), policy(context=2), rows(3, 2), 4, seed=0)
    assert (found.obs[:, :, 3:] == np.array([[0, 1], [2, 3], [4, 5]])[:, None]).all()


def test_what_follows_a_trip_is_masked_and_never_joined_to_the_next_episode() -> None:
    safe = Safety(low=87.9, high=1000.0)
    cold = policy(log_sd=0.5)
    found = roll_out(environment(PLANT, 8, safety=safe), cold, rows(8), 120, seed=1)
    length = found.valid.sum(1)
    assert found.terminated.any()
    assert (length[found.terminated] < 120).all()
    for row, n in enumerate(length):
        assert found.valid[row, :n].all()
        assert not found.valid[row, n:].any()
        assert (found.rewards[row, n:] == 0).all()
        assert (found.obs[row, 1:n, 0] >= 87.9).all()  # only the last observation is beyond


def test_the_recorded_mean_and_deviation_are_those_of_the_draws() -> None:
    acting = policy()
    found = roll_out(environment(PLANT, 40), acting, rows(40), 6, seed=2)
    with torch.no_grad():
        mean = acting(torch.from_numpy(found.obs[:, :-1])).numpy()
    np.testing.assert_allclose(found.mean, mean, atol=1e-6)
    drawn = (found.actions - found.mean) / np.exp(found.log_sd)
    assert abs(drawn.mean()) < 4 / 240**0.5
    assert abs(drawn.std() - 1) < 4 / 480**0.5


def test_offsets_reach_the_plant_and_not_the_record() -> None:
    push = np.full((4, 6, 1), 0.7, np.float32)
    pushed = Contexts(rows(4).z, rows(4).mode, push)
    plain = roll_out(environment(PLANT, 4), policy(), rows(4), 6, seed=2)
    found = roll_out(environment(PLANT, 4), policy(), pushed, 6, seed=2)
    np.testing.assert_array_equal(found.actions[:, 0], plain.actions[:, 0])
    np.testing.assert_allclose(found.taken[:, 0], plain.taken[:, 0] + 0.7, atol=1e-5)


def test_a_batch_carries_a_rollout_unchanged() -> None:
    found = roll_out(environment(PLANT, 4), policy(), rows(4), 6, seed=2)
    (batch,) = found.to_batch().policy_batches.values()
    back = Rollout.from_batch(batch)
    for name, value in vars(found).items():
        np.testing.assert_array_equal(getattr(back, name), value)


def test_training_moves_the_policy_as_far_as_it_says(algorithm: PolicyOptimisation) -> None:
    before = algorithm.networks().policy
    algorithm.training_step()
    after, rollout = algorithm.networks().policy, algorithm.found_rollout
    with torch.no_grad():
        seen = torch.from_numpy(rollout.obs[:, :-1])
        np.testing.assert_allclose(rollout.mean, before(seen).numpy(), atol=1e-6)
        moved = divergence(before(seen), before.log_sd, after(seen), after.log_sd).mean()
    assert 0 < float(moved) < 0.1
    figures = algorithm.figures()
    assert figures["samples"] == 72
    assert figures["return"] == pytest.approx(float(rollout.rewards.sum(1).mean()))


def test_training_taken_up_again_ends_where_the_unbroken_one_does(ray_session: Session) -> None:
    ray_session.ensure()
    unbroken, first, second = made(), made(), made()
    returns = [f["return"] for f in optimise(unbroken)]
    for _ in range(2):
        first.training_step()
    kept = {name: np.array(value) for name, value in first.snapshot().items()}
    second.restore_snapshot(kept)
    assert [f["return"] for f in optimise(second)] == returns[2:]
    for name, value in unbroken.snapshot().items():
        np.testing.assert_array_equal(second.snapshot()[name], value)
    for each in (unbroken, first, second):
        each.stop()


def test_several_env_runners_sample_all_rows(ray_session: Session) -> None:
    ray_session.ensure()
    algorithm = made(SMALL.model_copy(update={"runners": 2}))
    algorithm.training_step()
    rollout = algorithm.found_rollout
    assert rollout.mode.tolist() == [0, 1, 0, 1, 0, 1]
    with torch.no_grad():
        again = made().networks().policy  # the same seed makes the same networks
        mean = again(torch.from_numpy(rollout.obs[:, :-1])).numpy()
    np.testing.assert_allclose(rollout.mean, mean, atol=1e-6)
    algorithm.stop()


@pytest.mark.slow
def test_an_expert_comes_near_the_bound_of_the_reactor(ray_session: Session) -> None:
    from envs.bounds import cstr_bound
    from envs.metrics import tracking
    from trainers.control.closed_loop import respond
    from trainers.control.expert.config import Config
    from trainers.control.expert.train import algorithm_of
    from trainers.control.record import controller

    ray_session.ensure()
    config = Config(recipe="expert", expert="learnt")
    algorithm = algorithm_of(config, 1)
    for _ in optimise(algorithm):
        pass
    acting = controller(config.full_plant, algorithm.networks().policy)
    for level, response in zip(
        config.plant.levels, respond(config.full_plant, [acting] * 2, 2, 1), strict=True
    ):
        assert tracking(response.quiet).iae[0] < 1.15 * cstr_bound(level).value
    algorithm.stop()
