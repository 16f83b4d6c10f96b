"""What does Adam remember? Rate and moments of an optimiser as arrays, and back."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

RATE = "rate"


def moments(optimizer: torch.optim.Optimizer) -> Arrays:
    """The rate, and each parameter's moments under its number, like "3/exp_avg"."""
    (group,) = optimizer.param_groups
    found: Arrays = {RATE: np.array(float(group["lr"]))}
    for i, parameter in enumerate(group["params"]):
        for key, value in optimizer.state.get(parameter, {}).items():
            found[f"{i}/{key}"] = value.detach().numpy().copy()
    return found


def set_moments(optimizer: torch.optim.Optimizer, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Take over what `moments` returned."""
    (group,) = optimizer.param_groups
    group["lr"] = float(arrays[RATE])
    for name, value in arrays.items():
        if name != RATE:
            index, key = name.split("/")
            state = optimizer.state[group["params"][int(index)]]
            state[key] = torch.from_numpy(np.array(value))


def prefixed(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """The same arrays under longer names."""
    return {f"{prefix}/{name}": value for name, value in arrays.items()}


def under(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Those of the arrays that `prefixed` named, under their own names."""
    start = f"{prefix}/"
    return {n.removeprefix(start): v for n, v in arrays.items() if n.startswith(start)}
