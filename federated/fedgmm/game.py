"""The zero-sum game of FedDeepGMM and one client's steps in it (arXiv 2505.21012, eq. 14, Alg. 1).

g(x; theta) is the structural function, f(z; tau) the critic that looks for a violated moment:

    U(theta, tau) = mean f(z) (y - g(x)) - 1/4 mean f(z)^2 (y - g(x; theta~))^2

theta descends and tau ascends, at the same time. theta~ is detached: it only weighs moments.
All variants (full batch, minibatch, momentum, optimistic Adam, control variates) are options of
`local_steps`; the centralised DeepGMM is the same code with one client.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Optimizer = Literal["sgd", "momentum", "oadam"]
Weights = Literal["residual", "constant"]

MOMENTUM = 0.9
OADAM_BETAS = (0.5, 0.9)  # of the DeepGMM authors
OADAM_EPS = 1e-8


class Player(Protocol):
    """A network as a function of one flat parameter vector."""

    @property
    def parameters(self) -> int:
        """Length of the flat vector."""
        ...

    def describe(self) -> dict[str, Any]:
        """Its construction as JSON, for a message."""
        ...

    def init(self, seed: int) -> Tensor:
        """Initial flat vector."""
        ...

    def __call__(self, flat: Tensor, inputs: Tensor) -> Tensor:
        """Outputs (..., n) for flat parameters (..., P) and n inputs."""
        ...


@dataclass(frozen=True)
class Players:
    """The two networks and how their parameters share one flat vector [theta, tau]."""

    g: Player
    f: Player

    def init(self, seed: int) -> Tensor:
        """Initial parameters of both, from independent streams of one seed."""
        streams = np.random.SeedSequence([seed, 2]).generate_state(2)
        both = self.g.init(int(streams[0])), self.f.init(int(streams[1]))
        return torch.cat([part.to(torch.float64) for part in both])

    def split(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Return views of theta and of tau."""
        return flat[..., : self.g.parameters], flat[..., self.g.parameters :]


@dataclass(frozen=True)
class Batch:
    """Standardised rows as tensors: y (n,), inputs of g (n, p + c) and of f (n, q + c), or images.

    A stack of batches has one more dimension in front, of clients, and `share` (clients, n): the
    weights of the rows in their client's means, zero for rows that only fill up a shorter batch.
    """

    y: Tensor
    x: Tensor
    z: Tensor
    share: Tensor | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.y)

    def mean(self, values: Tensor) -> Tensor:
        """Mean over rows of values (..., n), shape (...)."""
        return values.mean(-1) if self.share is None else (values * self.share).sum(-1)


def payoff(
    players: Players, flat: Tensor, batch: Batch, tilde: Tensor | None, weights: Weights
) -> Tensor:
    """U of eq. 14 on a batch, differentiable in `flat`; one value a client for a stack.

    Parameters
    ----------
    flat : (P,), or (clients, P) for a stack of batches.
    tilde : parameters of g for theta~, in the same form, or None for the current theta.
    weights : "residual" as in the paper; "constant" replaces each squared residual by their mean,
        which makes a critic linear in its parameters the criterion of 2SLS.
    """
    theta, tau = players.split(flat)
    error = batch.y - players.g(theta, batch.x)
    weighing = error.detach() if tilde is None else batch.y - players.g(tilde, batch.x)
    critic = players.f(tau, batch.z)
    square = weighing * weighing
    if weights == "constant":
        square = batch.mean(square)[..., None]
    return batch.mean(critic * error) - 0.25 * batch.mean(critic * critic * square)


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
    rows: Sequence[Batch],
    steps: Steps,
    tilde: Tensor | None,
    states: Sequence[Mapping[str, Tensor]],
    correction: Tensor | None,
    rngs: Sequence[np.random.Generator],
) -> tuple[Tensor, list[dict[str, Tensor]], Tensor]:
    """Play R simultaneous descent-ascent steps of several clients at once, each on its own rows.

    The clients do not touch each other: their parameters are stacked, and so are their batches,
    where shorter ones are filled up with rows of weight zero.

    Parameters
    ----------
    start : (clients, P), flat parameters of the round.
    rows : of each client.
    tilde : (clients, P of g), theta~, or None for the current theta of each step.
    states : each client's optimiser state from its last round; empty starts afresh.
    correction : (clients, P), c - c_i of SCAFFOLD, added to each gradient, or None.
    rngs : each draws its client's minibatches; a batch of None, or of all rows, uses every row.

    Returns
    -------
    flat (clients, P), states, payoffs (clients,) : parameters after the steps, optimiser states, U
        before the first step.
    """
    flat = start
    signs = torch.full_like(start[0], steps.lr_g)
    signs[players.g.parameters :] = -steps.lr_f  # ascent
    batches = Batches(rows, steps.batch)
    memory = Memory.of(steps.optimizer, states, start)
    first = torch.zeros(len(rows))
    for step in range(steps.count):
        leaf = flat.detach().requires_grad_()
        value = payoff(players, leaf, batches.draw(rngs), tilde, steps.weights)
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
        if correction is not None:
            gradient = gradient + correction
        flat = flat - signs * memory.direction(gradient)
        if step == 0:
            first = value.detach()
    return flat, memory.split(), first


class Batches:
    """Draws a stack of batches from the rows of several clients."""

    def __init__(self, rows: Sequence[Batch], size: int | None) -> None:
        self._sizes = [len(r) for r in rows]
        self._drawn = [n if size is None else min(size, n) for n in self._sizes]
        self._starts = np.concatenate([[0], np.cumsum(self._sizes)[:-1]])
        self._all = Batch(*(torch.cat([getattr(r, k) for r in rows]) for k in ("y", "x", "z")))
        share = torch.zeros(len(rows), max(self._drawn), dtype=self._all.y.dtype)
        for i, drawn in enumerate(self._drawn):
            share[i, :drawn] = 1.0 / drawn
        self._share = share
        self._fixed = self._take(self._every_row()) if self._drawn == self._sizes else None

    def draw(self, rngs: Sequence[np.random.Generator]) -> Batch:
        """The next batch of each client; clients whose batch is all their rows draw nothing."""
        if self._fixed is not None:
            return self._fixed
        index = self._every_row()
        for i, (n, drawn) in enumerate(zip(self._sizes, self._drawn, strict=True)):
            if drawn < n:
                chosen = rngs[i].choice(n, drawn, replace=False, shuffle=False)
                index[i, :drawn] = self._starts[i] + chosen
        return self._take(index)

    def _every_row(self) -> NDArray[np.int64]:
        """Each client's first rows, (clients, width); short ones repeat their first row."""
        width = np.arange(max(self._drawn))
        inside = np.where(width < np.array(self._drawn)[:, None], width, 0)
        return np.asarray(self._starts[:, None] + inside)

    def _take(self, index: NDArray[np.int64]) -> Batch:
        chosen = torch.from_numpy(index)
        rows = self._all
        return Batch(rows.y[chosen], rows.x[chosen], rows.z[chosen], self._share)


@dataclass
class Memory:
    """What the optimisers of several clients remember, stacked: (clients, P) a tensor."""

    optimizer: Optimizer
    clients: int
    tensors: dict[str, Tensor]

    @classmethod
    def of(
        cls, optimizer: Optimizer, states: Sequence[Mapping[str, Tensor]], like: Tensor
    ) -> "Memory":
        """Stack the clients' states; what a client does not have starts at zero."""
        zero = torch.zeros_like(like[0])
        kept = {"sgd": (), "momentum": ("momentum",), "oadam": ("t", "m", "v", "step")}[optimizer]
        blank = {name: zero[:1] if name == "t" else zero for name in kept}
        stacked = {k: torch.stack([s.get(k, blank[k]) for s in states]) for k in kept}
        return cls(optimizer, len(states), stacked)

    def split(self) -> list[dict[str, Tensor]]:
        """Each client's own state."""
        return [{k: v[i] for k, v in self.tensors.items()} for i in range(self.clients)]

    def direction(self, gradient: Tensor) -> Tensor:
        """Turn gradients into steps, and remember."""
        if self.optimizer == "sgd":
            return gradient
        if self.optimizer == "momentum":
            self.tensors["momentum"] = MOMENTUM * self.tensors["momentum"] + gradient
            return self.tensors["momentum"]
        return self._optimistic_adam(gradient)

    def _optimistic_adam(self, gradient: Tensor) -> Tensor:
        """Optimistic Adam (Daskalakis et al., 2018): twice the new Adam step minus the last one."""
        beta1, beta2 = OADAM_BETAS
        held = self.tensors
        t = held["t"] + 1.0
        m = beta1 * held["m"] + (1 - beta1) * gradient
        v = beta2 * held["v"] + (1 - beta2) * gradient * gradient
        step = (m / (1 - beta1**t)) / (torch.sqrt(v / (1 - beta2**t)) + OADAM_EPS)
        ahead: Tensor = 2 * step - held["step"]
        self.tensors = {"t": t, "m": m, "v": v, "step": step}
        return ahead


def control_variate(
    own: Tensor, server: Tensor, start: Tensor, end: Tensor, steps: Steps, players: Players
) -> Tensor:
    """The client's next control variate (SCAFFOLD, option II): its mean gradient of this round."""
    signs = torch.full_like(start, steps.lr_g)
    signs[..., players.g.parameters :] = -steps.lr_f
    return own - server + (start - end) / (steps.count * signs)
