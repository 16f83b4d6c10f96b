"""Clients for tests: a plain list of rows that answers like a federation."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from federated.fedgmm.design import Array, Arrays, Scale
from federated.fedgmm.estimators import federated_scale
from federated.fedgmm.rows import Rows
from federated.fedgmm.statistics import answer


class Holding:
    """Answers every statistic for each of its clients, without Flower."""

    def __init__(self, rows: Sequence[Rows]) -> None:
        self.rows = list(rows)
        self.requests = 0

    @classmethod
    def split(cls, rows: Rows, parts: Sequence[NDArray[np.int64]]) -> "Holding":
        """Give each client the rows of its part."""
        return cls([rows.take(part) for part in parts])

    @property
    def labels(self) -> list[str]:
        return [f"client {i}" for i in range(len(self.rows))]

    def ask(
        self, statistic: str, arrays: Arrays, settings: Mapping[str, Any]
    ) -> list[dict[str, Array]]:
        self.requests += 1
        return [answer(statistic, own, arrays, settings) for own in self.rows]

    def scale(self) -> Scale:
        """Federated means and standard deviations."""
        return federated_scale(self, self.rows[0].x.shape[1], self.rows[0].z.shape[1])


def partitions(n: int, seed: int = 0) -> list[list[NDArray[np.int64]]]:
    """Very different partitions of n rows: one client, even, skewed, shuffled, many tiny ones."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(n)
    return [
        [np.arange(n)],
        list(np.array_split(np.arange(n), 3)),
        list(np.split(order, [n // 20, n // 3])),
        list(np.array_split(order, 40)),
    ]
