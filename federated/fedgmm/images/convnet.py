"""Small convolutional networks over images, as pure functions of one flat parameter vector.

They stand where `networks.Network` stands (same `parameters`, `sizes`, `init`, call), so the game
can play with either; `features` gives the last hidden layer, which a linear method can stand on.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from federated.fedgmm.images.files import MAX_SIDE, MIN_SIDE, Pixels
from federated.fedgmm.networks import LEAK

CHANNELS = (16, 32)
"""Channels after the first stage and after every later one."""
_KERNEL = 3
_SMALL = 4  # stages halve the image until no side is longer than this


def as_inputs(images: Pixels) -> Tensor:
    """Return images (uint8, 0 to 255) as float32 inputs of the same shape, from 0 to 1."""
    return torch.from_numpy(images).to(torch.float32) / 255.0


@dataclass(frozen=True)
class ConvNetwork:
    """Stages of convolution 3 x 3, LeakyReLU and max-pooling 2 x 2, then two linear layers.

    There are two stages for images of 8 x 8 pixels (28 x 28 and 32 x 32: three), with 16 channels
    after the first and 32 after the others. The first linear layer has `hidden` outputs, the
    features; LeakyReLU follows it.

    Attributes
    ----------
    shape
        Channels, height and width of an image; sides of 8 to 64 pixels.
    outputs
        Number of outputs: 1 for the game, more for supervised targets.
    hidden
        Number of features.

    Raises ValueError for sides that the stages do not fit.
    """

    shape: tuple[int, int, int]
    outputs: int = 1
    hidden: int = 32

    def __post_init__(self) -> None:
        """Refuse sides out of range."""
        if any(not MIN_SIDE <= side <= MAX_SIDE for side in self.shape[1:]):
            raise ValueError(f"image sides {self.shape[1:]} must be {MIN_SIDE} to {MAX_SIDE}")

    @cached_property
    def stages(self) -> int:
        """Number of convolutions: at least two, and until both sides are 4 pixels or fewer."""
        longest, count = max(self.shape[1:]), 2
        while longest >> count > _SMALL:
            count += 1
        return count

    @cached_property
    def layers(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the weights: (out, in, 3, 3) of the convolutions, (out, in) of the linear."""
        channels, height, width = self.shape
        widths = [channels, CHANNELS[0], *[CHANNELS[1]] * (self.stages - 1)]
        convolutions = [(widths[i + 1], widths[i], _KERNEL, _KERNEL) for i in range(self.stages)]
        flat = widths[-1] * (height >> self.stages) * (width >> self.stages)
        return (*convolutions, (self.hidden, flat), (self.outputs, self.hidden))

    @cached_property
    def sizes(self) -> list[int]:
        """Lengths of weight and bias of each layer, in the order of the flat vector."""
        return [size for shape in self.layers for size in (math.prod(shape), shape[0])]

    @property
    def parameters(self) -> int:
        """Length of the flat vector."""
        return sum(self.sizes)

    def describe(self) -> dict[str, Any]:
        """Its construction as JSON, for a message."""
        return {"shape": list(self.shape), "outputs": self.outputs, "hidden": self.hidden}

    def init(self, seed: int) -> Tensor:
        """Initial flat vector, float32: normal weights of He et al. (2015, eq. 15), biases zero.

        The variance is 2 / ((1 + leak^2) inputs of a unit), and 1 / inputs before the outputs,
        which no LeakyReLU follows.
        """
        generator = torch.Generator().manual_seed(seed)
        parts: list[Tensor] = []
        for layer, shape in enumerate(self.layers):
            gain = 2.0 / (1.0 + LEAK**2) if layer < len(self.layers) - 1 else 1.0
            weight = torch.randn(math.prod(shape), generator=generator, dtype=torch.float64)
            parts += [weight * math.sqrt(gain / math.prod(shape[1:])), torch.zeros(shape[0])]
        return torch.cat(parts).to(torch.float32)

    def features(self, flat: Tensor, inputs: Tensor) -> Tensor:
        """Activations (n, hidden) of the last hidden layer.

        Parameters
        ----------
        flat : parameters, shape (parameters,); what is computed has its type.
        inputs : images (n, channels, height, width): numbers from 0 to 1, or uint8 to 255.
        """
        parts = torch.split(flat, self.sizes)
        hidden = inputs / 255.0 if inputs.dtype == torch.uint8 else inputs
        hidden = hidden.to(flat.dtype)
        for stage in range(self.stages):
            weight = parts[2 * stage].view(self.layers[stage])
            hidden = functional.conv2d(hidden, weight, parts[2 * stage + 1], padding=_KERNEL // 2)
            # the pooling first: LeakyReLU rises, so the order does not matter to the result
            hidden = functional.leaky_relu(functional.max_pool2d(hidden, 2), LEAK)
        weight = parts[2 * self.stages].view(self.layers[self.stages])
        linear = functional.linear(hidden.flatten(1), weight, parts[2 * self.stages + 1])
        return functional.leaky_relu(linear, LEAK)

    def __call__(self, flat: Tensor, inputs: Tensor) -> Tensor:
        """Outputs (n,) under the flat parameters, or (n, outputs) when there are several.

        With one more dimension in front of both, of clients, each client's parameters meet its own
        images. Parameters in double precision are rounded to single precision to compute, and the
        outputs are given in the type of the parameters.
        """
        if flat.dim() == 2:
            return torch.stack([self(f, i) for f, i in zip(flat, inputs, strict=True)])
        single = flat.to(torch.float32)
        parts = torch.split(single, self.sizes)
        weight = parts[-2].view(self.layers[-1])
        result = functional.linear(self.features(single, inputs), weight, parts[-1])
        return (result[:, 0] if self.outputs == 1 else result).to(flat.dtype)
