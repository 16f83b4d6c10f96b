"""Which networks does a controller consist of? A Gaussian policy with its units inside it.

A policy takes observations in the units of the plant, because a network and its scaling are of no
use without each other: what is exported, checkpointed and run is one thing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Units:
    """How a box of numbers is centred and scaled: scaled = (value - centre) / width.

    Attributes
    ----------
    centre, width : one number for each column; widths are positive.
    """

    centre: Sequence[float]
    width: Sequence[float]

    def __post_init__(self) -> None:
        """Hold both against each other."""
        if len(self.centre) != len(self.width) or not all(w > 0 for w in self.width):
            raise ValueError("Every column needs a centre and a positive width.")


def perceptron(sizes: Sequence[int], last_gain: float = 1.0) -> nn.Sequential:
    """Layers of these sizes with tanh between them, orthogonal at the start.

    Parameters
    ----------
    last_gain : scale of the last layer's weights; small for a policy that begins near its centre.
    """
    layers: list[nn.Module] = []
    for i in range(len(sizes) - 1):
        linear = nn.Linear(sizes[i], sizes[i + 1])
        last = i == len(sizes) - 2
        nn.init.orthogonal_(linear.weight, last_gain if last else 2**0.5)
        nn.init.zeros_(linear.bias)
        layers += [linear] if last else [linear, nn.Tanh()]
    return nn.Sequential(*layers)


class Scaled(nn.Module):
    """Base of networks that read observations (..., k), the last `context` columns being z.

    Observations are scaled by `units`; z is taken as it is.
    """

    def __init__(self, units: Units, context: int = 0) -> None:
        super().__init__()
        self.context = context
        plain = [0.0] * context, [1.0] * context
        self.register_buffer("centre", torch.tensor([*units.centre, *plain[0]]))
        self.register_buffer("width", torch.tensor([*units.width, *plain[1]]))

    def scaled(self, x: Tensor) -> Tensor:
        """Observations without units."""
        centre, width = self.get_buffer("centre"), self.get_buffer("width")
        return (x - centre) / width


class GaussianPolicy(Scaled):
    """pi(u | x, z): a Gaussian with its own deviation for each action.

    Actions are dealt with in two units. The Gaussian, and every log-density, is over scaled actions
    a; the plant gets u = centre + width * a, which it clips to its own limits.

    Parameters
    ----------
    observations, actions : their units, without z.
    context : length of z.
    hidden : sizes of the hidden layers.
    log_sd : the deviation's logarithm at the start, in scaled units.
    """

    def __init__(
        self,
        observations: Units,
        actions: Units,
        context: int = 0,
        hidden: Sequence[int] = (64, 64),
        log_sd: float = -1.0,
    ) -> None:
        super().__init__(observations, context)
        self.hidden = tuple(hidden)
        sizes = [len(observations.centre) + context, *hidden, len(actions.centre)]
        self.mean = perceptron(sizes, last_gain=0.01)
        self.log_sd = nn.Parameter(torch.full((len(actions.centre),), log_sd))
        self.register_buffer("action_centre", torch.tensor([*actions.centre]))
        self.register_buffer("action_width", torch.tensor([*actions.width]))

    def forward(self, x: Tensor) -> Tensor:
        """Means of the scaled actions, (..., a), for observations (..., k), z among them."""
        found: Tensor = self.mean(self.scaled(x))
        return found

    def act(self, x: Tensor) -> Tensor:
        """The mean action in the units of the plant, (..., a)."""
        return self.unscaled(self.forward(x))

    def unscaled(self, a: Tensor) -> Tensor:
        """Actions in the units of the plant."""
        return self.get_buffer("action_centre") + self.get_buffer("action_width") * a

    def units(self) -> tuple[Units, Units]:
        """How it scales observations, without z, and actions."""
        k = len(self.get_buffer("centre")) - self.context
        plain = Units(*(self.get_buffer(name)[:k].tolist() for name in ("centre", "width")))
        names = ("action_centre", "action_width")
        return plain, Units(*(self.get_buffer(name).tolist() for name in names))

    def scaled_action(self, u: Tensor) -> Tensor:
        """Scaled actions a of actions in the units of the plant."""
        return (u - self.get_buffer("action_centre")) / self.get_buffer("action_width")


class Value(Scaled):
    """The expected return from an observation, (...)."""

    def __init__(
        self, observations: Units, context: int = 0, hidden: Sequence[int] = (64, 64)
    ) -> None:
        super().__init__(observations, context)
        self.value = perceptron([len(observations.centre) + context, *hidden, 1])

    def forward(self, x: Tensor) -> Tensor:
        """Values for observations (..., k), z among them."""
        found: Tensor = self.value(self.scaled(x)).squeeze(-1)
        return found


def log_density(mean: Tensor, log_sd: Tensor, a: Tensor) -> Tensor:
    """Log-density (...) of scaled actions (..., a) under a diagonal Gaussian."""
    z = (a - mean) * torch.exp(-log_sd)
    constant = a.shape[-1] * 1.8378770664093453  # log 2 pi
    total: Tensor = -0.5 * (z.square().sum(-1) + constant) - log_sd.sum(-1)
    return total
