"""The small perceptrons of the game, as pure functions of one flat parameter vector.

A flat vector is what travels, is averaged, and is checkpointed; the layers are views of it.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

LEAK = 0.01
"""Negative slope of LeakyReLU (PyTorch's default, as in the reference networks)."""


@dataclass(frozen=True)
class Network:
    """A perceptron with LeakyReLU between its layers; no hidden layer makes it linear.

    Attributes
    ----------
    widths : inputs, hidden widths..., outputs; (1, 20, 3, 1) and (2, 20, 1) in the paper's code.
    """

    widths: tuple[int, ...]

    @property
    def sizes(self) -> list[int]:
        """Lengths of weight and bias of each layer, in the order of the flat vector."""
        return [size for i, o in pairwise(self.widths) for size in (i * o, o)]

    @property
    def parameters(self) -> int:
        """Length of the flat vector."""
        return sum(self.sizes)

    def describe(self) -> dict[str, Any]:
        """Its construction as JSON, for a message."""
        return {"widths": list(self.widths)}

    def init(self, seed: int) -> Tensor:
        """Initial flat vector, float64: Xavier-normal weights (reference), spread first biases.

        The reference sets all biases to zero, which puts every kink of a network with one input at
        the same point. Here the first layer's biases are standard normal, so that the kinks are
        spread over the standardised inputs and no function with a kink at zero is favoured.
        """
        generator = torch.Generator().manual_seed(seed)
        parts: list[Tensor] = []
        for layer, (i, o) in enumerate(pairwise(self.widths)):
            weight = torch.randn(i * o, generator=generator, dtype=torch.float64)
            parts.append(weight * math.sqrt(2.0 / (i + o)))
            bias = torch.randn(o, generator=generator, dtype=torch.float64)
            hidden = layer == 0 and len(self.widths) > 2
            parts.append(bias if hidden else torch.zeros_like(bias))
        return torch.cat(parts)

    def __call__(self, flat: Tensor, inputs: Tensor) -> Tensor:
        """Outputs (n,) for inputs (n, widths[0]) under the flat parameters (P,).

        With one more dimension in front of both, of clients, each client's parameters meet its own
        inputs.
        """
        parts = torch.split(flat, self.sizes, dim=-1)
        multiply = torch.addmm if flat.dim() == 1 else torch.baddbmm
        hidden = inputs
        last = len(self.widths) - 2
        for layer, (i, o) in enumerate(pairwise(self.widths)):
            weight = parts[2 * layer].view(*flat.shape[:-1], o, i)
            hidden = multiply(parts[2 * layer + 1].unsqueeze(-2), hidden, weight.mT)
            if layer < last:
                hidden = torch.nn.functional.leaky_relu(hidden, LEAK)
        return hidden[..., 0]
