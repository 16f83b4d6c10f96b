"""TRPO's parts against dense linear algebra, and its trust region kept."""

import pytest
import torch
from torch import nn

from cluster.session import Session
from tests.trainers.control.test_rl import SMALL, made
from trainers.control.expert.config import Config
from trainers.control.networks import GaussianPolicy, Units
from trainers.control.rl.learner import divergence
from trainers.control.rl.settings import PolicySettings
from trainers.control.rl.trpo import conjugate_gradients, fisher_product


def tiny() -> tuple[GaussianPolicy, torch.Tensor]:
    torch.manual_seed(0)
    policy = GaussianPolicy(Units([0.0, 0.0], [1.0, 2.0]), Units([0.0], [1.0]), 0, (3,), -0.4)
    policy = policy.double()
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, dtype=torch.float64))
    return policy, torch.randn(20, 2, dtype=torch.float64)


def full_fisher(policy: GaussianPolicy, obs: torch.Tensor) -> torch.Tensor:
    """E[score score'] in closed form: J' J / sd^2 of the mean, and 2 for the log-deviation."""
    parameters = list(policy.parameters())
    size = sum(p.numel() for p in parameters)
    found = torch.zeros(size, size, dtype=torch.float64)
    for row in obs:
        slopes = torch.autograd.grad(policy(row)[0], parameters, allow_unused=True)
        flat = torch.cat(
            [
                torch.zeros(p.numel(), dtype=torch.float64) if s is None else s.reshape(-1)
                for p, s in zip(parameters, slopes, strict=True)
            ]
        )
        found += torch.outer(flat, flat) * torch.exp(-2 * policy.log_sd.detach()) / len(obs)
    place = 0
    for p in parameters:
        if p is policy.log_sd:
            found[place, place] += 2.0
        place += p.numel()
    return found


def test_the_fishers_product_is_that_of_the_full_matrix() -> None:
    policy, obs = tiny()
    full = full_fisher(policy, obs)
    for seed in range(3):
        v = torch.randn(len(full), generator=torch.Generator().manual_seed(seed)).double()
        product = fisher_product(policy, obs, v, damping=0.05)
        torch.testing.assert_close(product, full @ v + 0.05 * v, rtol=1e-9, atol=1e-10)


def test_conjugate_gradients_solve_what_a_factorisation_solves() -> None:
    policy, obs = tiny()
    full = full_fisher(policy, obs) + 0.1 * torch.eye(14, dtype=torch.float64)
    right = torch.randn(14, generator=torch.Generator().manual_seed(1)).double()
    found = conjugate_gradients(lambda v: full @ v, right, 40)
    torch.testing.assert_close(found, torch.linalg.solve(full, right), rtol=1e-4, atol=1e-4)


def test_the_trust_region_is_kept_and_nearly_used(ray_session: Session) -> None:
    ray_session.ensure()
    limit = 0.02
    algorithm = made(SMALL.model_copy(update={"algorithm": "trpo", "divergence": limit}))
    for _ in range(3):
        before = algorithm.networks().policy
        algorithm.training_step()
        after = algorithm.networks().policy
        seen = torch.from_numpy(algorithm.found_rollout.obs[:, :-1])
        with torch.no_grad():
            moved = divergence(before(seen), before.log_sd, after(seen), after.log_sd).mean()
        assert 0.5 * limit < float(moved) <= limit * 1.001
        assert algorithm.figures()["divergence"] == pytest.approx(float(moved), rel=1e-3)
    algorithm.stop()


def test_one_step_is_not_shared_out() -> None:
    with pytest.raises(ValueError, match="by one learner"):
        PolicySettings(algorithm="trpo", learners=2)


def test_values_still_learn(ray_session: Session) -> None:
    ray_session.ensure()
    algorithm = made(SMALL.model_copy(update={"algorithm": "trpo"}))
    before = nn.utils.parameters_to_vector(algorithm.networks().value.parameters()).detach()
    algorithm.training_step()
    after = nn.utils.parameters_to_vector(algorithm.networks().value.parameters()).detach()
    assert not torch.equal(before, after)
    algorithm.stop()


def test_a_run_file_that_changes_one_setting_keeps_the_reactors_others() -> None:
    policy = Config.model_validate({"recipe": "expert", "policy": {"iterations": 7}}).policy
    assert policy == Config(recipe="expert").policy.model_copy(update={"iterations": 7})
    assert (policy.algorithm, policy.rows, policy.samples) == ("trpo", 128, 100)
