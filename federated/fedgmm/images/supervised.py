"""One client's supervised steps: a network learns standardised targets from its images.

This is the local part of federated averaging (McMahan et al., 2017, Algorithm 1): the server sends
a flat parameter vector, each client fits it to its own rows for a few epochs, and the server
averages what comes back.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from federated.fedgmm.images.convnet import ConvNetwork, as_inputs
from federated.fedgmm.images.files import Pixels
from federated.fedgmm.rows import Floats


def local_fit(
    network: ConvNetwork,
    start: Tensor,
    images: Pixels,
    targets: Floats,
    epochs: int,
    batch: int,
    lr: float,
    rng: np.random.Generator,
    weight_decay: float = 0.0,
) -> Tensor:
    """Lower the mean squared error on one client's rows by Adam, from a fresh state.

    The same arguments and generator state give the same bits, since one thread computes.

    Parameters
    ----------
    start : flat parameters of the round, float32; left as they are.
    images, targets : (n, channels, height, width) and (n, outputs), targets in units of the
        standard deviations that all clients share.
    epochs, batch : passes over the rows, each in a new order, and rows of a step; the last step
        of a pass takes what is left.
    lr, weight_decay : of AdamW (Loshchilov and Hutter, 2019): each step also shrinks all
        parameters by the factor 1 - lr weight_decay.
    rng : orders the rows.

    Returns
    -------
    The parameters after the last step, shape of `start`.

    Raises
    ------
    ValueError
        When images and targets do not fit each other or the network.
    """
    _check(network, images, targets)
    goal = torch.from_numpy(targets).to(start.dtype)
    flat = start.detach().clone().requires_grad_()
    optimizer = torch.optim.AdamW([flat], lr=lr, weight_decay=weight_decay)
    with one_thread():
        for _ in range(epochs):
            order = rng.permutation(len(images))
            for first in range(0, len(order), batch):
                chosen = order[first : first + batch]
                outputs = network(flat, as_inputs(images[chosen]).to(start.dtype))
                error = outputs.view(len(chosen), -1) - goal[torch.from_numpy(chosen)]
                optimizer.zero_grad()
                (error * error).mean().backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    return flat.detach()


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread inside, which makes sums come out the same every time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _check(network: ConvNetwork, images: Pixels, targets: Floats) -> None:
    """Hold the shapes against each other."""
    if len(images) == 0:
        raise ValueError("there are no images")
    if images.shape[1:] != network.shape:
        raise ValueError(f"images are {images.shape[1:]}; the network takes {network.shape}")
    if targets.shape != (len(images), network.outputs):
        raise ValueError(
            f"targets have shape {targets.shape}; expected ({len(images)}, {network.outputs})"
        )
