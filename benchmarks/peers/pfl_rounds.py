"""The rounds in pfl: one process that trains the users of a cohort one after another."""

from collections import Counter
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from benchmarks.peers import work


class Model(work.Network):
    """The network with the two methods that pfl asks of it."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """What a client minimises."""
        return nn.functional.mse_loss(self(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        """What a client measures, in round 1 only."""
        return {"loss": Weighted(float(self.loss(x, y).detach()) * len(x), len(x))}


class Rows(Dataset):  # type: ignore[misc]
    """A client's rows in one round; iterating gives that round's minibatches."""

    def __init__(self, client: int, number: int) -> None:
        super().__init__(work.rows(client), user_id=str(client))
        self._place = (number, client)

    def iter(self, batch_size: int | None) -> Iterator[tuple[Tensor, ...]]:
        """Yield the round's minibatches, or all rows."""
        yield from work.batches(*self._place) if batch_size == work.BATCH else [self.raw_data]


class Tick(TrainingProcessCallback):  # type: ignore[misc]
    """Tells the clock of each round's end."""

    def __init__(self, clock: work.Clock) -> None:
        self._clock = clock

    def after_central_iteration(
        self, metrics: Any, model: Any, *, central_iteration: int
    ) -> tuple[bool, Any]:
        """Never stops, measures nothing."""
        self._clock.ended(central_iteration + 1)
        return False, Metrics()


def run(clients: int, rounds: int) -> dict[str, Any]:
    """Play the rounds; every client is in every cohort."""
    clock = work.Clock(rounds, work.born())
    network = Model()
    played: Counter[int] = Counter()

    def rows_of(client: int) -> Rows:
        played[client] += 1
        return Rows(client, played[client])

    everyone = cycle(range(clients))
    data = FederatedDataset(rows_of, lambda: next(everyone))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds,
            train_cohort_size=clients,
            val_cohort_size=0,
        ),
        SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()]),
        PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0)),
        NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=work.RATE, local_batch_size=work.BATCH
        ),
        callbacks=[Tick(clock)],
        send_metrics_to_platform=False,
    )
    return work.outcome("pfl", "pfl", clients, rounds, clock, network)


if __name__ == "__main__":
    work.command(run)
