"""Convolutional networks against torch.nn; a client's fit against hand-made steps."""

import math
import pickle

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from federated.fedgmm.game import Batch, Players, payoff
from federated.fedgmm.images.convnet import ConvNetwork, as_inputs
from federated.fedgmm.images.files import Pixels
from federated.fedgmm.images.supervised import local_fit
from federated.fedgmm.networks import LEAK, Network
from federated.fedgmm.rows import Floats
from federated.streams import stream

DIGITS = ConvNetwork((1, 8, 8), outputs=2)


def modules(network: ConvNetwork, flat: Tensor) -> nn.Sequential:
    """The same network from torch.nn, in the order that its description states."""
    parts: list[nn.Module] = []
    for shape in network.layers[:-2]:
        parts += [nn.Conv2d(shape[1], shape[0], 3, padding=1), nn.LeakyReLU(LEAK), nn.MaxPool2d(2)]
    hidden, outputs = network.layers[-2:]
    parts += [nn.Flatten(), nn.Linear(hidden[1], hidden[0]), nn.LeakyReLU(LEAK)]
    parts += [nn.Linear(outputs[1], outputs[0])]
    result = nn.Sequential(*parts)
    nn.utils.vector_to_parameters(flat, result.parameters())
    return result.to(flat.dtype)


def pictures(network: ConvNetwork, n: int, seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (n, *network.shape), dtype=np.uint8)


def task(n: int) -> tuple[Pixels, Floats]:
    """Images, and two targets that can be read from them."""
    images = pictures(DIGITS, n)
    images[:, :, :4] //= np.random.default_rng(1).integers(1, 9, (n, 1, 1, 1), dtype=np.uint8)
    top, below = images[:, 0, :4].mean((1, 2)), images[:, 0, 4:].mean((1, 2))
    targets = np.column_stack([top, below - top])
    return images, (targets - targets.mean(0)) / targets.std(0)


@pytest.mark.parametrize(
    ("shape", "layers"),
    [
        ((1, 8, 8), [(16, 1, 3, 3), (32, 16, 3, 3), (32, 128), (3, 32)]),
        ((1, 28, 28), [(16, 1, 3, 3), (32, 16, 3, 3), (32, 32, 3, 3), (32, 288), (3, 32)]),
        ((3, 32, 32), [(16, 3, 3, 3), (32, 16, 3, 3), (32, 32, 3, 3), (32, 512), (3, 32)]),
        ((1, 9, 20), [(16, 1, 3, 3), (32, 16, 3, 3), (32, 32, 3, 3), (32, 64), (3, 32)]),
    ],
)
def test_it_is_the_same_function_as_a_torch_module(
    shape: tuple[int, int, int], layers: list[tuple[int, ...]]
) -> None:
    network = ConvNetwork(shape, outputs=3)
    flat = torch.randn(network.parameters, generator=torch.Generator().manual_seed(1)).double()
    flat *= 0.1
    inputs = as_inputs(pictures(network, 5)).double()
    module = modules(network, flat)

    assert list(network.layers) == layers
    assert network.parameters == sum(p.numel() for p in module.parameters())
    # Outputs are computed in single precision, whatever the parameters' type.
    torch.testing.assert_close(network(flat, inputs), module(inputs), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(network.features(flat, inputs), module[:-1](inputs))


def test_gradients_are_those_of_the_module_and_reach_every_layer() -> None:
    flat = DIGITS.init(0).double().requires_grad_()
    inputs = as_inputs(pictures(DIGITS, 20)).double()
    module = modules(DIGITS, flat.detach())

    (gradient,) = torch.autograd.grad(DIGITS(flat, inputs).square().mean(), flat)
    module(inputs).square().mean().backward()

    other = torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])
    torch.testing.assert_close(gradient, other, rtol=1e-4, atol=1e-6)
    assert all(part.abs().max() > 0 for part in torch.split(gradient, DIGITS.sizes))


def test_initial_weights_have_the_variance_of_he_and_biases_are_zero() -> None:
    network = ConvNetwork((3, 32, 32), hidden=200, outputs=200)
    parts = torch.split(network.init(4), network.sizes)
    for layer, shape in enumerate(network.layers):
        gain = 1.0 if layer == len(network.layers) - 1 else 2 / (1 + LEAK**2)
        expected = gain / math.prod(shape[1:])
        spread = 5 * math.sqrt(2 / math.prod(shape))
        assert float(parts[2 * layer].var()) == pytest.approx(expected, rel=spread)
        assert not parts[2 * layer + 1].any()
    assert network.init(4).dtype == torch.float32
    assert torch.equal(network.init(4), network.init(4))
    assert not torch.equal(network.init(4), network.init(5))


def test_inputs_run_from_zero_to_one() -> None:
    images = np.array([0, 51, 255], dtype=np.uint8).reshape(3, 1, 1, 1)
    torch.testing.assert_close(as_inputs(images).flatten(), torch.tensor([0.0, 0.2, 1.0]))


def test_sides_out_of_range_are_refused_and_a_network_can_be_sent() -> None:
    for shape in ((1, 7, 8), (1, 8, 65)):
        with pytest.raises(ValueError, match="must be 8 to 64"):
            ConvNetwork(shape)
    assert DIGITS.parameters > 0  # after its cached shapes are there
    assert pickle.loads(pickle.dumps(DIGITS)) == DIGITS


def test_the_game_plays_with_images_of_the_treatment() -> None:
    images, targets = task(50)
    players = Players(ConvNetwork((1, 8, 8)), Network((2, 20, 1)))
    flat = players.init(0).to(torch.float32).requires_grad_()
    z = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    batch = Batch(torch.from_numpy(targets[:, 0]).float(), as_inputs(images), z)

    value = payoff(players, flat, batch, None, "residual")
    (gradient,) = torch.autograd.grad(value, flat)

    theta, tau = players.split(gradient)
    assert theta.abs().max() > 0
    assert tau.abs().max() > 0


def test_one_step_is_the_step_of_adamw_on_the_module() -> None:
    images, targets = task(12)
    start = DIGITS.init(0)
    module = modules(DIGITS, start.clone())
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01, weight_decay=0.5)
    goal = torch.from_numpy(targets).float()
    loss = nn.functional.mse_loss(module(as_inputs(images)), goal)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()

    reached = local_fit(DIGITS, start, images, targets, 1, 12, 0.01, stream(0, "fit"), 0.5)

    other = nn.utils.parameters_to_vector(module.parameters()).detach()
    torch.testing.assert_close(reached, other, rtol=1e-4, atol=1e-5)


def test_a_fit_learns_repeats_exactly_and_leaves_its_start_alone() -> None:
    images, targets = task(400)
    start = DIGITS.init(0)
    before, threads = start.clone(), torch.get_num_threads()

    def fit(seed: int, epochs: int) -> Tensor:
        return local_fit(DIGITS, start, images, targets, epochs, 32, 3e-3, stream(seed, "fit"))

    reached = fit(0, 20)

    def errors(flat: Tensor) -> NDArray[np.float64]:
        outputs = DIGITS(flat, as_inputs(images)).double().numpy()
        return np.asarray(((outputs - targets) ** 2).mean(axis=0))

    assert (errors(start) > 0.5).all()
    assert (errors(reached) < 0.1).all()
    assert torch.equal(fit(0, 2), fit(0, 2))
    assert not torch.equal(fit(1, 2), fit(0, 2))
    assert torch.equal(start, before)
    assert torch.get_num_threads() == threads


def test_one_output_gives_a_column_of_errors() -> None:
    network = ConvNetwork((1, 8, 8))
    images, targets = task(8)
    assert network(network.init(0), as_inputs(images)).shape == (8,)
    reached = local_fit(network, network.init(0), images, targets[:, :1], 1, 3, 1e-3, stream(0))
    assert reached.shape == (network.parameters,)


def test_shapes_that_do_not_fit_are_refused() -> None:
    images, targets = task(6)
    flat = DIGITS.init(0)
    for wrong_images, wrong_targets in (
        (images[:0], targets[:0]),
        (images[:, :, :7], targets),
        (images, targets[:5]),
        (images, targets[:, :1]),
    ):
        with pytest.raises(ValueError, match=r"images|targets"):
            local_fit(DIGITS, flat, wrong_images, wrong_targets, 1, 3, 1e-3, stream(0))
