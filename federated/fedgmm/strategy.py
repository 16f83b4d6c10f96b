"""FedGDA as a Flower strategy: the weighted average of the players, then the server's own step.

The paper's server averages the clients' changes with weight 1/N (Algorithm 1; eq. 23). Averaging
the parameters is the same thing, and exact for one client. `ServerStep` generalises it to momentum
(FedAvgM) and Adam (FedAdam, Reddi et al., 2020), whose memory is plain arrays that a checkpoint can
hold.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ServerKind = Literal["average", "momentum", "adam"]

ADAM_BETAS = (0.9, 0.99)
ADAM_TAU = 1e-3


@dataclass(frozen=True)
class ServerStep:
    """How the server moves from its parameters towards the clients' average."""

    kind: ServerKind = "average"
    lr: float = 1.0
    momentum: float = 0.9

    def apply(self, old: Floats, average: Floats, memory: dict[str, Floats]) -> Floats:
        """Return the new parameters and update `memory`."""
        if self.kind == "average" and self.lr == 1.0:
            return average
        change = average - old
        if self.kind == "average":
            return old + self.lr * change
        if self.kind == "momentum":
            memory["m"] = self.momentum * memory.get("m", np.zeros_like(old)) + change
            return old + self.lr * memory["m"]
        beta1, beta2 = ADAM_BETAS
        memory["m"] = beta1 * memory.get("m", np.zeros_like(old)) + (1 - beta1) * change
        memory["v"] = beta2 * memory.get("v", np.zeros_like(old)) + (1 - beta2) * change**2
        return np.asarray(old + self.lr * memory["m"] / (np.sqrt(memory["v"]) + ADAM_TAU))


class FedGDA(FedAvg):
    """Average the clients' players and apply the server step.

    Parameters
    ----------
    step : what the server does with the average.
    flat : current global parameters [theta, tau].
    memory : the server optimiser's memory, kept across rounds and checkpoints.
    """

    def __init__(self, step: ServerStep, flat: Floats, memory: dict[str, Floats]) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.step = step
        self.flat = flat
        self.memory = memory

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the replies, which must be complete and in the order of the clients."""
        arrays, metrics = super().aggregate_train(server_round, replies)
        if arrays is None:
            return arrays, metrics
        self.flat = self.step.apply(self.flat, arrays["flat"].numpy(), self.memory)
        return ArrayRecord({"flat": Array(self.flat)}), metrics
