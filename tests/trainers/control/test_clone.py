"""Which samples of a demonstration a clone learns from."""

import numpy as np
import torch

from trainers.control.imitate.clone import EARLY, LATE, Cloning
from trainers.control.imitate.settings import CloneSettings
from trainers.control.trajectories import Trajectories


def cloning(lengths: list[int]) -> Cloning:
    n, most = len(lengths), max(lengths)
    x = np.random.default_rng(0).standard_normal((n, most, 2)).astype(np.float32)
    data = Trajectories(
        ("T", "b"), ("m",), 10.0, np.array([str(i) for i in range(n)]), x, x[:, :, :1].copy(),
        np.array(lengths),
    )  # fmt: skip
    return Cloning(data, CloneSettings(), conditional=False, seed=0)


def test_early_and_late_samples_are_taken_more_often() -> None:
    lengths = [1, 2, 40, 300]
    rows = torch.arange(4).repeat(2000)
    times = cloning(lengths)._times(rows)
    assert times.shape == (8000, 48)
    assert (times >= 0).all()
    assert (times < torch.tensor(lengths)[rows, None]).all()
    share = times[rows == 3].double() / 300
    rest = 1 - 1 / EARLY - 1 / LATE
    assert abs(float((share < 0.1).double().mean()) - (1 / EARLY + 0.1 * rest)) < 0.01
    assert abs(float((share >= 0.5).double().mean()) - (1 / LATE + 0.5 * rest)) < 0.01
