"""How good is a clone? What it explains of new trajectories, which modes it finds, how it runs.

True modes, where known, match the clone's codes to the plant's modes and count how often q is
right; nothing that was learnt depends on them.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from trainers.control.closed_loop import Learnt, respond
from trainers.control.imitate.clone import Cloning, Tensors
from trainers.control.imitate.data import Demonstrations
from trainers.control.inference import PooledEncoder, nearest
from trainers.control.networks import GaussianPolicy, log_density
from trainers.control.plants import PlantSettings
from trainers.control.scores import MEASURES, measured
from trainers.control.trajectories import Singles, Trajectories

SEEN = (5, 10, 20, 50)
"""Samples after which mode inference is judged, and after all."""

WHOLE = 10**9


def log_likelihood(cloning: Cloning, data: Trajectories) -> NDArray[np.float64]:
    """Mean log pi(u | x, z) of each trajectory, nats a sample, (n,); z is q's likeliest."""
    tensors = Tensors.of(data, cloning.policy)
    valid = torch.from_numpy(data.valid)
    with torch.no_grad():
        x = tensors.x
        if cloning.inference is not None:
            z = cloning.inference.code(codes_of(cloning.inference, tensors, WHOLE))
            x = torch.cat([x, z[:, None].expand(-1, x.shape[1], -1)], -1)
        each = log_density(cloning.policy(x), cloning.policy.log_sd, tensors.a)
        total = (each * valid).sum(1) / valid.sum(1)
    return np.asarray(total, np.float64)


def codes_of(q: PooledEncoder, tensors: Tensors, samples: int) -> Tensor:
    """Parameters of q for the first samples of every trajectory."""
    with torch.no_grad():
        found: Tensor = q(*tensors.piece(torch.arange(len(tensors.length)), samples))
    return found


def matching(cloning: Cloning, known: Demonstrations, modes: int) -> Singles:
    """The code that q has for the trajectories of each mode, (modes, c).

    No discrete code is given twice where there are enough.

    Parameters
    ----------
    known : demonstrations with their true modes, in each mode at least one.
    """
    assert cloning.inference is not None
    assert known.mode is not None
    q, tensors = cloning.inference, Tensors.of(known.data, cloning.policy)
    z = q.code(codes_of(q, tensors, WHOLE)).numpy()
    means = np.stack([z[known.mode == m].mean(0) for m in range(modes)])
    if q.kind == "gaussian" or q.size < modes:
        chosen = means if q.kind == "gaussian" else np.eye(q.size)[means.argmax(1)]
        return np.asarray(chosen, np.float32)
    _, columns = linear_sum_assignment(-means)
    return np.asarray(np.eye(q.size)[columns], np.float32)


def accuracy(
    q: PooledEncoder, policy: GaussianPolicy, codes: Singles, held: Demonstrations
) -> dict[str, float]:
    """Share of held-out trajectories whose mode q finds, by how many samples it saw."""
    assert held.mode is not None
    tensors = Tensors.of(held.data, policy)
    found = {}
    for samples in (*SEEN, WHOLE):
        guess = nearest(codes, q.code(codes_of(q, tensors, samples)).numpy())
        found["all" if samples == WHOLE else str(samples)] = float((guess == held.mode).mean())
    return found


def best_codes(cloning: Cloning, plant: PlantSettings, seed: int) -> Singles:
    """The code that runs each mode best, (modes, c), where nobody knows the true ones."""
    z = np.eye(cloning.policy.context, dtype=np.float32)
    main = MEASURES[plant.kind][0]
    acting = [[Learnt(cloning.policy, plant.seen, c)] * len(plant.levels) for c in z]
    runs = [respond(plant, each, 1, seed) for each in acting]
    values = np.array([[measured(plant, r.quiet)[main.name][0] for r in run] for run in runs])
    best = values.argmin(0) if main.better == "lower" else values.argmax(0)
    return np.asarray(z[best], np.float32)
