"""Controllers that tests save, export and ask, with weights that are not small."""

import numpy as np
import torch

from trainers.control.controller import SavedController
from trainers.control.inference import Kind, PooledEncoder
from trainers.control.networks import GaussianPolicy, Units

SEEN = Units([1.1, 88.0, 50.0], [0.5, 4.0, 20.0])
MOVED = Units([0.25, 2.0], [0.1, 3.0])


def controller(context: int = 2, kind: Kind | None = "discrete", seed: int = 0) -> SavedController:
    """A controller of three observations and two actions; `kind` None is one without inference."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        policy = GaussianPolicy(SEEN, MOVED, context, hidden=(8, 5))
        q = PooledEncoder(SEEN, 2, context, kind, hidden=(7, 6)) if kind and context else None
        with torch.no_grad():
            for net in (policy, q):
                for p in net.parameters() if net is not None else ():
                    p.copy_(torch.randn(p.shape))
    codes = np.eye(context, dtype=np.float32) if context else np.zeros((1, 0), np.float32)
    return SavedController(
        policy=policy,
        inference=q,
        observations=("CA", "T", "TC"),
        actions=("m", "flow"),
        seconds=10.0,
        low=(0.0, -1.0),
        high=(0.5, 7.5),
        pieces=(5, 20) if q is not None else (),
        codes=codes,
    )


def samples(*shape: int, units: Units = SEEN, seed: int = 0) -> torch.Tensor:
    """Values around the centre of some units, (*shape, columns)."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn((*shape, len(units.centre)), generator=generator)
    return torch.tensor(units.centre) + torch.tensor(units.width) * drawn
