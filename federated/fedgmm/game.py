"""The zero-sum game of FedDeepGMM and one client's steps in it (arXiv 2505.21012, eq. 14, Alg. 1).

g(x; theta) is the structural function, f(z; tau) the critic that looks for a violated moment:

    U(theta, tau) = mean f(z) (y - g(x)) - 1/4 mean f(z)^2 (y - g(x; theta~))^2

theta descends and tau ascends, at the same time. theta~ is detached: it only weighs moments.
All variants (full batch, minibatch, momentum, optimistic Adam, control variates) are options of
`local_steps`; the centralised DeepGMM is the same code with one client.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from federated.fedgmm.networks import Network

Optimizer = Literal["sgd", "momentum", "oadam"]
Weights = Literal["residual", "constant"]

MOMENTUM = 0.9
OADAM_BETAS = (0.5, 0.9)  # of the DeepGMM authors
OADAM_EPS = 1e-8


@dataclass(frozen=True)
class Players:
    """The two networks and how their parameters share one flat vector [theta, tau]."""

    g: Network
    f: Network

    def init(self, seed: int) -> Tensor:
        """Initial parameters of both, from independent streams of one seed."""
        streams = np.random.SeedSequence([seed, 2]).generate_state(2)
        return torch.cat([self.g.init(int(streams[0])), self.f.init(int(streams[1]))])

    def split(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Return views of theta and of tau."""
        return flat[: self.g.parameters], flat[self.g.parameters :]


@dataclass(frozen=True)
class Batch:
    """Standardised rows as tensors: y (n,), inputs of g (n, p + c) and of f (n, q + c)."""

    y: Tensor
    x: Tensor
    z: Tensor

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.y)

    def take(self, index: Tensor) -> "Batch":
        """Return the rows at `index`."""
        return Batch(self.y[index], self.x[index], self.z[index])


def payoff(
    players: Players, flat: Tensor, batch: Batch, tilde: Tensor | None, weights: Weights
) -> Tensor:
    """U of eq. 14 on a batch, differentiable in `flat`.

    Parameters
    ----------
    tilde : parameters of g for theta~, or None for the current theta.
    weights : "residual" as in the paper; "constant" replaces each squared residual by their mean,
        which makes a critic linear in its parameters the criterion of 2SLS.
    """
    theta, tau = players.split(flat)
    error = batch.y - players.g(theta, batch.x)
    weighing = error.detach() if tilde is None else batch.y - players.g(tilde, batch.x)
    critic = players.f(tau, batch.z)
    square = weighing * weighing
    if weights == "constant":
        square = square.mean().expand_as(square)
    return (critic * error).mean() - 0.25 * (critic * critic * square).mean()


@dataclass(frozen=True)
class Steps:
    """What a client does between two rounds."""

    count: int
    batch: int | None
    optimizer: Optimizer
    lr_g: float
    lr_f: float
    weights: Weights


def local_steps(
    players: Players,
    start: Tensor,
    rows: Batch,
    steps: Steps,
    tilde: Tensor | None,
    state: Mapping[str, Tensor],
    correction: Tensor | None,
    rng: np.random.Generator,
) -> tuple[Tensor, dict[str, Tensor], float]:
    """Play R simultaneous descent-ascent steps from the global parameters.

    Parameters
    ----------
    start : flat parameters of the round.
    tilde : theta~, or None for the current theta of each step.
    state : the client's optimiser state from its last round; empty starts afresh.
    correction : c - c_i of SCAFFOLD, added to each gradient, or None.
    rng : draws the minibatches; a batch of None, or of all rows, uses every row each step.

    Returns
    -------
    flat, state, payoff : parameters after the steps, optimiser state, U before the first step.
    """
    flat = start.clone()
    signs = torch.full_like(flat, steps.lr_g)
    signs[players.g.parameters :] = -steps.lr_f  # ascent
    memory = dict(state)
    first = 0.0
    for step in range(steps.count):
        batch = rows
        if steps.batch is not None and steps.batch < len(rows):
            chosen = rng.choice(len(rows), steps.batch, replace=False, shuffle=False)
            batch = rows.take(torch.from_numpy(chosen))
        leaf = flat.detach().requires_grad_()
        value = payoff(players, leaf, batch, tilde, steps.weights)
        (gradient,) = torch.autograd.grad(value, leaf)
        if correction is not None:
            gradient = gradient + correction
        flat = flat - signs * _direction(steps.optimizer, gradient, memory)
        if step == 0:
            first = float(value.detach())
    return flat, memory, first


def _direction(optimizer: Optimizer, gradient: Tensor, memory: dict[str, Tensor]) -> Tensor:
    """Turn a gradient into a step and update `memory` (new tensors, never in place)."""
    if optimizer == "sgd":
        return gradient
    if optimizer == "momentum":
        previous = memory.get("momentum")
        memory["momentum"] = gradient if previous is None else MOMENTUM * previous + gradient
        return memory["momentum"]
    return _optimistic_adam(gradient, memory)


def _optimistic_adam(gradient: Tensor, memory: dict[str, Tensor]) -> Tensor:
    """Optimistic Adam (Daskalakis et al., 2018): twice the new Adam step minus the previous one."""
    beta1, beta2 = OADAM_BETAS
    zero = torch.zeros_like(gradient)
    t = memory.get("t", torch.zeros(1, dtype=torch.float64)) + 1.0
    m = beta1 * memory.get("m", zero) + (1 - beta1) * gradient
    v = beta2 * memory.get("v", zero) + (1 - beta2) * gradient * gradient
    power = float(t)
    step = (m / (1 - beta1**power)) / (torch.sqrt(v / (1 - beta2**power)) + OADAM_EPS)
    previous = memory.get("step", zero)
    memory.update(t=t, m=m, v=v, step=step)
    ahead: Tensor = 2 * step - previous
    return ahead


def control_variate(
    own: Tensor, server: Tensor, start: Tensor, end: Tensor, steps: Steps, players: Players
) -> Tensor:
    """The client's next control variate (SCAFFOLD, option II): its mean gradient of this round."""
    signs = torch.full_like(start, steps.lr_g)
    signs[players.g.parameters :] = -steps.lr_f
    return own - server + (start - end) / (steps.count * signs)
