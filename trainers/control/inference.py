"""Which mode does a piece of a trajectory belong to? The inference network q(z | tau).

It reads any number of samples: each is read beside the one before it, by the same perceptron, and
what they say is averaged. z is one of K modes (a one-hot vector), or a Gaussian vector.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from trainers.control.networks import Scaled, Units, log_density, perceptron

Kind = Literal["discrete", "gaussian"]

LEAST_SD = 1e-3
"""Of a Gaussian z, so that its density stays finite."""


class PooledEncoder(Scaled):
    """q(z | tau) for pieces tau of any length.

    Parameters
    ----------
    observations : their units.
    actions : how many numbers an action has; they are read as scaled.
    size : K modes, or the length of a Gaussian z.
    kind : "discrete" or "gaussian".
    hidden : sizes of the perceptron that reads a sample.
    """

    def __init__(
        self,
        observations: Units,
        actions: int,
        size: int,
        kind: Kind = "discrete",
        hidden: Sequence[int] = (64, 64),
    ) -> None:
        super().__init__(observations)
        self.kind: Kind = kind
        self.size = size
        self.hidden = tuple(hidden)
        width = len(observations.centre) + actions
        self.sample = nn.Sequential(perceptron([2 * width, *hidden]), nn.Tanh())
        self.head = nn.Linear(hidden[-1], size if kind == "discrete" else 2 * size)

    def forward(self, x: Tensor, a: Tensor, valid: Tensor) -> Tensor:
        """Logits (n, K), or means and deviations before softplus (n, 2c).

        Parameters
        ----------
        x : (n, T, k), observations in the units of the plant.
        a : (n, T, a), scaled actions that followed them.
        valid : (n, T), which samples are seen; at least one of each row.
        """
        here = torch.cat([self.scaled(x), a], dim=-1)
        before = torch.cat([here[:, :1], here[:, :-1]], dim=1)
        said = self.sample(torch.cat([here, here - before], dim=-1))
        seen = valid.to(said.dtype)[..., None]
        found: Tensor = self.head((said * seen).sum(1) / seen.sum(1))
        return found

    def draw(
        self, parameters: Tensor, temperature: float, generator: torch.Generator | None = None
    ) -> Tensor:
        """z drawn with a gradient: Gumbel-softmax at a temperature, or mean + sd * noise."""
        if self.kind == "discrete":
            uniform = torch.rand(parameters.shape, generator=generator).clamp(1e-10, 1 - 1e-7)
            gumbel = -torch.log(-torch.log(uniform))
            return functional.softmax((parameters + gumbel) / temperature, -1)
        mean, sd = self._gaussian(parameters)
        return mean + sd * torch.randn(mean.shape, generator=generator)

    def draw_code(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        """z (n, c) drawn from q, without a gradient."""
        if self.kind == "gaussian":
            return self.draw(parameters, 1.0, generator).detach()
        drawn = torch.multinomial(functional.softmax(parameters, -1), 1, generator=generator)
        return functional.one_hot(drawn[:, 0], self.size).to(parameters.dtype)

    def code(self, parameters: Tensor) -> Tensor:
        """The likeliest z: one-hot, or the mean."""
        if self.kind == "gaussian":
            return self._gaussian(parameters)[0]
        return functional.one_hot(parameters.argmax(-1), self.size).to(parameters.dtype)

    def log_prob(self, parameters: Tensor, z: Tensor) -> Tensor:
        """log q(z | tau), (n,)."""
        if self.kind == "discrete":
            return (functional.log_softmax(parameters, -1) * z).sum(-1)
        mean, sd = self._gaussian(parameters)
        return log_density(mean, torch.log(sd), z)

    def regulariser(self, parameters: Tensor) -> Tensor:
        """What keeps z in use, a scalar to be made small.

        Discrete: minus the mutual information of mode and trajectory over the batch, H(z | tau) -
        H(z). Gaussian: the mean divergence KL(q(z | tau) || N(0, 1)).
        """
        if self.kind == "discrete":
            log_q = functional.log_softmax(parameters, -1)
            within = -(log_q.exp() * log_q).sum(-1).mean()
            share = log_q.exp().mean(0)
            return within + (share * torch.log(share + 1e-12)).sum()
        mean, sd = self._gaussian(parameters)
        return 0.5 * (mean.square() + sd.square() - 1 - 2 * torch.log(sd)).sum(-1).mean()

    def _gaussian(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        mean, raw = parameters.chunk(2, dim=-1)
        return mean, functional.softplus(raw) + LEAST_SD


def nearest(codes: NDArray[np.float32], z: NDArray[np.float32]) -> NDArray[np.int64]:
    """The mode (n,) whose code, out of (K, c), is nearest to each z (n, c)."""
    distance = np.square(z[:, None] - codes).sum(-1)
    return np.asarray(distance.argmin(1), np.int64)
