"""Trust-region policy optimisation of whole rollouts (arXiv 1502.05477).

The policy takes one natural-gradient step as long as the trust region allows: conjugate gradients
solve F s = g with products of the Fisher matrix alone, and a line search shortens the step until
the mean divergence keeps its limit and the surrogate grows. The value takes steps of Adam.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from torch import Tensor, nn
from torch.nn import functional

from trainers.control.networks import GaussianPolicy, log_density
from trainers.control.rl.learner import RolloutLearner, Samples, divergence
from trainers.control.rl.module import VALUE

DAMPING = 0.1
"""Added to the Fisher matrix's diagonal, which may be singular."""

SOLVES, TRIES, SHORTER = 15, 15, 0.8
"""Steps of conjugate gradients; steps of the line search, each so much shorter than the last.

The first step is mostly a few percent too far. Half of it would use a quarter of the divergence.
"""

FISHER = 2000
"""Samples, drawn anew for each step, that the Fisher matrix is taken over: its products are most of
an update's time, and the line search holds the step against all samples anyway."""


def fisher_product(policy: GaussianPolicy, obs: Tensor, vector: Tensor, damping: float) -> Tensor:
    """(F + damping) v, F the Hessian of the mean divergence from the policy to its neighbours.

    Parameters
    ----------
    obs : (N, k + c), the samples that the mean is over.
    vector : v, as long as all parameters of the policy.
    """
    parameters = list(policy.parameters())
    mean, log_sd = policy(obs), policy.log_sd
    away = divergence(mean.detach(), log_sd.detach(), mean, log_sd).mean()
    slope = _flat(torch.autograd.grad(away, parameters, create_graph=True))
    return _flat(torch.autograd.grad(slope @ vector, parameters)) + damping * vector


def conjugate_gradients(product: Callable[[Tensor], Tensor], right: Tensor, steps: int) -> Tensor:
    """Solve A x = right for a positive definite A of which only products are known."""
    found = torch.zeros_like(right)
    residual, direction = right.clone(), right.clone()
    size = residual @ residual
    for _ in range(steps):
        if size < 1e-10:
            break
        along = product(direction)
        length = size / (direction @ along)
        found = found + length * direction
        residual = residual - length * along
        before, size = size, residual @ residual
        direction = residual + size / before * direction
    return found


class TRPOLearner(RolloutLearner):
    """One step of the policy as far as `divergence`, then epochs of the value."""

    def optimise(self, samples: Samples, generator: torch.Generator) -> None:
        """Move policy and value; the policy by all samples at once."""
        s, count = self.settings, len(samples.returns)
        self._step(samples, samples.obs[torch.randperm(count, generator=generator)[:FISHER]])
        for _ in range(s.epochs):
            order = torch.randperm(count, generator=generator)
            for rows in torch.tensor_split(order, max(1, round(count / s.minibatch))):
                self._update({DEFAULT_MODULE_ID: samples.take(rows)})

    def loss(self, batch: Mapping[str, Any], found: Mapping[str, Any]) -> Tensor:
        """The value's loss of a minibatch, a scalar."""
        return functional.smooth_l1_loss(found[VALUE], batch["returns"])

    def _step(self, samples: Samples, some: Tensor) -> None:
        policy, limit = self.networks.policy, self.settings.divergence
        parameters = list(policy.parameters())
        start = nn.utils.parameters_to_vector(parameters).detach()
        surrogate = self._surrogate(samples)
        gradient = _flat(torch.autograd.grad(surrogate, parameters))

        def product(vector: Tensor) -> Tensor:
            return fisher_product(policy, some, vector, DAMPING)

        direction = conjugate_gradients(product, gradient, SOLVES)
        curvature = direction @ product(direction)
        step = direction * torch.sqrt(2 * limit / curvature.clamp_min(1e-12))
        moved = 0.0
        for tried in range(TRIES):
            nn.utils.vector_to_parameters(start + SHORTER**tried * step, parameters)
            with torch.no_grad():
                mean, log_sd = policy(samples.obs), policy.log_sd
                moved = float(divergence(samples.mean, samples.log_sd, mean, log_sd).mean())
                better = float(self._surrogate(samples)) > float(surrogate)
            if better and moved <= limit:
                break
        else:
            nn.utils.vector_to_parameters(start, parameters)
            moved = 0.0
        self.note("divergence", moved)

    def _surrogate(self, samples: Samples) -> Tensor:
        policy = self.networks.policy
        log_prob = log_density(policy(samples.obs), policy.log_sd, samples.actions)
        gained = (torch.exp(log_prob - samples.log_prob) * samples.advantages).mean()
        return gained + self.settings.entropy * policy.log_sd.sum()


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
