"""The work that every peer is given, and the clock that it is measured with.

Imports only numpy, torch and psutil: these scripts run in environments that have nothing of ours.
All arithmetic is float32 in one torch thread. Rows come from (client), minibatches from (round,
client) and initial parameters from one seed, all by numpy, so that every peer should reach the same
loss up to the order of its sums.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

ROWS = 200
BATCH = 64
STEPS = 10
RATE = 0.01
WIDTHS = (1, 20, 3, 1)
SEED = 7

Floats = NDArray[np.float32]


class Network(nn.Sequential):
    """The perceptron 1-20-3-1, with the parameters that every peer starts from."""

    def __init__(self) -> None:
        """Build it."""
        a, b, c, d = WIDTHS
        leaky = nn.LeakyReLU
        super().__init__(
            nn.Linear(a, b), leaky(0.01), nn.Linear(b, c), leaky(0.01), nn.Linear(c, d)
        )
        rng = np.random.default_rng([SEED, 0])
        with torch.no_grad():
            for parameter in self.parameters():
                drawn = rng.normal(0.0, 0.5, tuple(parameter.shape)).astype(np.float32)
                parameter.copy_(torch.from_numpy(drawn))

    def arrays(self) -> list[Floats]:
        """Copies of the parameters, in the order of the state dictionary."""
        return [p.detach().numpy().copy() for p in self.parameters()]

    def take(self, arrays: Sequence[Floats]) -> None:
        """Overwrite the parameters."""
        with torch.no_grad():
            for parameter, array in zip(self.parameters(), arrays, strict=True):
                parameter.copy_(torch.from_numpy(np.array(array, np.float32)))


@cache
def rows(client: int) -> tuple[Tensor, Tensor]:
    """Inputs and outputs of a client, (200, 1) each: y = |x| + noise."""
    rng = np.random.default_rng([SEED, 1, client])
    x = rng.normal(size=(ROWS, 1)).astype(np.float32)
    y = np.abs(x) + 0.1 * rng.normal(size=(ROWS, 1)).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(y)


def batches(number: int, client: int) -> list[tuple[Tensor, Tensor]]:
    """The minibatches of a client in a round (from 1), drawn without replacement within each."""
    rng = np.random.default_rng([SEED, 2, number, client])
    x, y = rows(client)
    chosen = [torch.from_numpy(rng.permutation(ROWS)[:BATCH]) for _ in range(STEPS)]
    return [(x[c], y[c]) for c in chosen]


def train(network: nn.Module, number: int, client: int) -> None:
    """The local steps of a client in a round, from the parameters that `network` holds."""
    optimizer = torch.optim.SGD(network.parameters(), lr=RATE)
    for x, y in batches(number, client):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(network(x), y)
        loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
        optimizer.step()


def loss_of(network: nn.Module, clients: int) -> float:
    """Mean squared error over the rows of all clients."""
    with torch.no_grad():
        losses = [nn.functional.mse_loss(network(x), y) for x, y in map(rows, range(clients))]
    return float(torch.stack(losses).mean())


def average(sent: Sequence[Sequence[Floats]]) -> list[Floats]:
    """FedAvg of clients with equally many rows: the mean of each array."""
    return [np.mean(arrays, axis=0, dtype=np.float32) for arrays in zip(*sent, strict=True)]


def bare(clients: int, rounds: int, ended: Callable[[int], None]) -> Network:
    """The rounds as a plain loop, with nothing that carries messages; tells of each round's end."""
    network = Network()
    for number in range(1, rounds + 1):
        start = network.arrays()
        sent = []
        for client in range(clients):
            network.take(start)
            train(network, number, client)
            sent.append(network.arrays())
        network.take(average(sent))
        ended(number)
    return network


def one_thread() -> None:
    """Keep torch to one thread: the network is too small to share out."""
    torch.set_num_threads(1)


def _tree_seconds() -> float:
    """CPU seconds of this process and of all that descend from it, the ended ones too."""
    own = psutil.Process()
    ended = own.cpu_times()
    total = time.process_time() + float(ended.children_user + ended.children_system)
    for process in own.children(recursive=True):
        try:
            total += float(sum(process.cpu_times()[:4]))  # with those it has waited for
        except psutil.Error:
            continue  # ended since; its parent accounts for it
    return total


def born() -> float:
    """When this process began, in seconds since the epoch."""
    return float(psutil.Process().create_time())


class Clock:
    """Reads wall and CPU time at the end of round 1 and of the last round.

    Start-up is counted from `since`, the birth of the process that was asked for the rounds.
    """

    def __init__(self, rounds: int, since: float) -> None:
        if rounds < 2:
            raise ValueError("rounds must be 2 or more: the first one counts as start-up")
        self._rounds = rounds
        self._since = since
        self._read: dict[int, tuple[float, float]] = {}

    def ended(self, number: int) -> None:
        """Note that round `number` (from 1) has ended."""
        if number in (1, self._rounds):
            self._read[number] = (time.time(), _tree_seconds())

    def seconds(self) -> dict[str, float]:
        """Seconds a round over rounds 2 to the last, and the seconds before round 2.

        Start-up runs to the end of round 1, less one later round.
        """
        (wall, cpu), (last_wall, last_cpu) = self._read[1], self._read[self._rounds]
        each = (last_wall - wall) / (self._rounds - 1)
        return {
            "seconds_per_round": each,
            "cpu_seconds_per_round": (last_cpu - cpu) / (self._rounds - 1),
            "startup_seconds": wall - self._since - each,
        }


def outcome(
    peer: str, package: str, clients: int, rounds: int, clock: Clock, network: nn.Module
) -> dict[str, Any]:
    """One measurement in the form that the benchmark reads; `network` holds what was reached."""
    return {
        "peer": peer,
        "version": version(package),
        "clients": clients,
        "rounds": rounds,
        **clock.seconds(),
        "final_loss": loss_of(network, clients),
    }


def command(run: Callable[..., dict[str, Any]], engines: Sequence[str] = ()) -> None:
    """Read `--clients` and `--rounds`, run, and print one line of JSON, the last of the output.

    A script with a choice of engines is also given `--engine`, the first one unless told.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=20)
    if engines:
        parser.add_argument("--engine", choices=engines, default=engines[0])
    one_thread()
    print(json.dumps(run(**vars(parser.parse_args()))), flush=True)
