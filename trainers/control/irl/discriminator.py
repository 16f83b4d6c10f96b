"""How is a reward told from demonstrations? The discriminator of adversarial IRL.

    D = exp f / (exp f + pi) = sigmoid(f - log pi)                 arXiv 2505.21026, eq. 29
    f = r(x, u, z), or g(x', z) + gamma h(x', z) - h(x, z)         arXiv 1710.11248, eq. 6 (shaped)

The policy is rewarded with log D - log(1 - D), which is D's logit. Where D sees states alone, D is
sigmoid(g(x', z)), and at its best g = log rho_E(x') - log rho(x'), the densities of the
demonstrations' states and of those that they are held against (arXiv 2011.04709).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.control.irl.settings import Form
from trainers.control.networks import Scaled, Units, perceptron


class Reward(Scaled):
    """r(x, z) or r(x, u, z), a number for each sample.

    Parameters
    ----------
    observations : units of the columns that are read.
    columns : which of a policy's observations they are.
    context : length of z.
    actions : how many numbers of a scaled action are read too; 0 for a reward of states.
    hidden : sizes of the hidden layers.
    """

    columns: Tensor

    def __init__(
        self,
        observations: Units,
        columns: tuple[int, ...],
        context: int,
        actions: int = 0,
        hidden: tuple[int, ...] = (64, 64),
    ) -> None:
        super().__init__(observations)
        self.hidden = hidden
        self.register_buffer("columns", torch.tensor(columns))
        self.net = perceptron([len(columns) + actions + context, *hidden, 1])

    def read(self, x: Tensor) -> Tensor:
        """The columns of observations (..., k) that are read, scaled."""
        return self.scaled(x[..., self.columns])

    def of_scaled(self, read: Tensor, z: Tensor, a: Tensor | None = None) -> Tensor:
        """Rewards (...) for what `read` returned."""
        parts = [read, z] if a is None else [read, a, z]
        found: Tensor = self.net(torch.cat(parts, dim=-1)).squeeze(-1)
        return found

    def forward(self, x: Tensor, z: Tensor, a: Tensor | None = None) -> Tensor:
        """Rewards (...) for observations (..., k) in the units of the plant and z (..., c)."""
        return self.of_scaled(self.read(x), z, a)


@dataclass(frozen=True)
class Steps:
    """Single steps of demonstrations or rollouts.

    Attributes
    ----------
    x, next_x : (n, k), observations before and after, in the units of the plant.
    a : (n, a), scaled actions as the policy has them.
    z : (n, c).
    log_prob : (n,), log pi(a | x, z) of the policy that D holds them against.
    """

    x: Tensor
    next_x: Tensor
    a: Tensor
    z: Tensor
    log_prob: Tensor

    def __len__(self) -> int:
        """How many there are."""
        return len(self.x)

    def take(self, rows: Tensor) -> "Steps":
        """Those with these numbers."""
        return Steps(*(column[rows] for column in vars(self).values()))

    @classmethod
    def joined(cls, *parts: "Steps") -> "Steps":
        """Put several together."""
        return cls(*(torch.cat(c) for c in zip(*(vars(p).values() for p in parts), strict=True)))


class Discriminator(nn.Module):
    """A reward in one of the three forms, with what D makes of it.

    Parameters
    ----------
    form, gamma : see the module's formulas; gamma is the discount of the potentials.
    observations, columns, context, actions, hidden : as `Reward` has them.

    Attributes
    ----------
    reward : r or g: what is kept when training is over.
    potential : h, or None.
    """

    def __init__(
        self,
        form: Form,
        observations: Units,
        columns: tuple[int, ...],
        context: int,
        actions: int,
        hidden: tuple[int, ...] = (64, 64),
        gamma: float = 1.0,
    ) -> None:
        super().__init__()
        self.form, self.gamma = form, gamma
        read = actions if form == "action" else 0
        self.reward = Reward(observations, columns, context, read, hidden)
        self.potential = (
            Reward(observations, columns, context, 0, hidden) if form == "shaped" else None
        )

    def worth(self, steps: Steps) -> Tensor:
        """The reward (n,) of each step, without potentials."""
        if self.form == "action":
            found: Tensor = self.reward(steps.x, steps.z, steps.a)
        else:
            found = self.reward(steps.next_x, steps.z)
        return found

    def forward(self, steps: Steps) -> Tensor:
        """D's logit (n,) of each step."""
        f = self.worth(steps)
        if self.potential is not None:
            after, before = self.potential(steps.next_x, steps.z), self.potential(steps.x, steps.z)
            f = f + self.gamma * after - before
        return f if self.form == "state" else f - steps.log_prob

    def slope(self, one: Steps, other: Steps, share: Tensor) -> Tensor:
        """The squared gradient (n,) of the reward between two sides' steps, at `share` (n,).

        As a penalty it keeps the reward from growing steep where no sample calls for it
        (arXiv 1704.00028, towards 0 instead of 1).
        """
        reward, part = self.reward, share[:, None]

        def between(a: Tensor, b: Tensor) -> Tensor:
            return (part * a + (1 - part) * b).detach().requires_grad_(True)

        acting = self.form == "action"
        ends = (one.x, other.x) if acting else (one.next_x, other.next_x)
        read = between(reward.read(ends[0]), reward.read(ends[1]))
        a = between(one.a, other.a) if acting else None
        inputs = [read] if a is None else [read, a]
        total = reward.of_scaled(read, one.z, a).sum()
        found = torch.autograd.grad(total, inputs, create_graph=True)
        return torch.stack([g.square().sum(-1) for g in found]).sum(0)


def classification(expert: Tensor, other: Tensor) -> Tensor:
    """The mean of both sides' binary cross-entropies, for logits of D."""
    return 0.5 * (functional.softplus(-expert).mean() + functional.softplus(other).mean())
