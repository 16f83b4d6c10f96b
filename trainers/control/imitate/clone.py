"""How are demonstrations cloned, with or without modes? Behaviour cloning and its conditional form.

Without modes it is regression: the likeliest policy pi(u | x). With modes, q(z | tau) reads a piece
of a trajectory, z is drawn from it, and pi(u | x, z) must explain the trajectory's actions: a
variational autoencoder of trajectories, as arXiv 2505.21026 and its source (PEMIRL) begin with.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from trainers.control.imitate.settings import CloneSettings
from trainers.control.inference import PooledEncoder
from trainers.control.networks import GaussianPolicy, Units, log_density
from trainers.control.trajectories import Trajectories

EARLY = 12
"""One in so many of the predicted samples is among the first tenth, where most is decided: whoever
starts wrong meets states that no demonstration shows."""

LATE = 3
"""One in so many is in the second half, besides those that fall there anyway. Where a transient
passes through a state near rest, the expert's action still answers what lies behind; with few late
samples that draws the clone's point of rest away from the expert's."""


@dataclass(frozen=True)
class Tensors:
    """Trajectories as tensors: x (n, T, k), scaled actions a (n, T, a), length (n,)."""

    x: Tensor
    a: Tensor
    length: Tensor

    @classmethod
    def of(cls, data: Trajectories, policy: GaussianPolicy) -> "Tensors":
        """Trajectories with their actions as the policy scales them."""
        a = policy.scaled_action(torch.from_numpy(data.u))
        return cls(torch.from_numpy(data.x), a, torch.from_numpy(data.length))

    def piece(self, rows: Tensor, samples: int) -> tuple[Tensor, Tensor, Tensor]:
        """The first samples of some rows, and which of them are valid, as q reads them."""
        t = min(samples, self.x.shape[1])
        valid = torch.arange(t) < self.length[rows, None]
        return self.x[rows, :t], self.a[rows, :t], valid


def measured_units(data: Trajectories) -> tuple[Units, Units]:
    """Centre and deviation of every observation and action over all samples."""

    def of(values: np.ndarray) -> Units:
        rows = values[data.valid].astype(np.float64)
        width = rows.std(0)
        return Units(rows.mean(0).tolist(), np.where(width > 0, width, 1.0).tolist())

    return of(data.x), of(data.u)


class Cloning(nn.Module):
    """A policy being cloned, with q where there are modes.

    Parameters
    ----------
    data : the trajectories to learn from.
    settings : `modes` and what follows from it count only if `conditional`.
    conditional : whether there is a z.
    seed : of the networks and of every draw.

    Attributes
    ----------
    policy : pi; inference : q, or None.
    """

    def __init__(
        self, data: Trajectories, settings: CloneSettings, *, conditional: bool, seed: int
    ) -> None:
        super().__init__()
        self.settings = settings
        self.generator = torch.Generator().manual_seed(seed)
        observations, actions = measured_units(data)
        context = settings.modes if conditional else 0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.policy = GaussianPolicy(observations, actions, context, settings.hidden)
            self.inference = (
                PooledEncoder(
                    observations, len(data.actions), context, settings.context, settings.hidden
                )
                if conditional
                else None
            )
        self._tensors = Tensors.of(data, self.policy)
        self.optimizer = torch.optim.Adam(self.parameters(), settings.lr)

    def train_steps(self, first: int, last: int) -> Iterator[float]:
        """Take steps first .. last - 1 and yield each one's loss, nats a sample."""
        for step in range(first, last):
            for group in self.optimizer.param_groups:
                done = step / self.settings.steps
                group["lr"] = self.settings.lr * 0.5 * (1 + math.cos(math.pi * done))
            self.optimizer.zero_grad()
            loss = self._loss(step)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self.parameters(), 10.0)
            self.optimizer.step()
            yield float(loss.detach())

    def _loss(self, step: int) -> Tensor:
        s, n = self.settings, len(self._tensors.length)
        rows = torch.randint(n, (min(s.batch, n),), generator=self.generator)
        times = self._times(rows)
        x, a = self._tensors.x[rows[:, None], times], self._tensors.a[rows[:, None], times]
        if self.inference is None:
            return -log_density(self.policy(x), self.policy.log_sd, a).mean()
        samples = s.pieces[int(torch.randint(len(s.pieces), (1,), generator=self.generator))]
        parameters = self.inference(*self._tensors.piece(rows, samples))
        z = self.inference.draw(parameters, self._temperature(step), self.generator)
        beside = z[:, None].expand(-1, x.shape[1], -1)
        mean = self.policy(torch.cat([x, beside], -1))
        explained = -log_density(mean, self.policy.log_sd, a).mean()
        return explained + s.regulariser * self.inference.regulariser(parameters)

    def _times(self, rows: Tensor) -> Tensor:
        """Samples (n, times) of these rows, some of them early and some late."""
        length, times = self._tensors.length[rows, None], self.settings.times
        share = torch.rand((len(rows), times), generator=self.generator)
        early, late = math.ceil(times / EARLY), times // LATE
        share[:, :early] *= 0.1
        share[:, early : early + late] = 0.5 + 0.5 * share[:, early : early + late]
        return torch.minimum((share * length).long(), length - 1)  # 0.5 + 0.5 s may round to 1

    def _temperature(self, step: int) -> float:
        high, low = self.settings.temperature
        return max(low, high + (low - high) * 3 * step / self.settings.steps)
