"""The rounds through our own engine: the apps of `flower_rounds`, carried by `federated.engine`."""

from collections.abc import Callable
from typing import Any

from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from benchmarks.peers import work
from benchmarks.peers.flower_rounds import client_app, serve
from cluster.config import ClusterSettings
from cluster.session import Session
from federated.engine import in_process, simulate

Server = Callable[[Grid], work.Network]
Carrier = Callable[[Server, ClientApp, int], work.Network]


def grid(server: Server, app: ClientApp, clients: int) -> work.Network:
    """Clients on the workers of a private Ray, as many as there are CPUs."""
    with Session(ClusterSettings()):
        return simulate(server, app, clients)


ENGINES: dict[str, Carrier] = {"grid": grid, "in_process": in_process}
"""What can carry the messages."""


def run(clients: int, rounds: int, engine: str) -> dict[str, Any]:
    """Play the rounds with one of `ENGINES`."""
    clock = work.Clock(rounds, work.born())
    carry = ENGINES[engine]
    network = carry(lambda grid: serve(grid, clients, clock, rounds), client_app, clients)
    measured = work.outcome("corymb", "corymb", clients, rounds, clock, network)
    return {**measured, "engine": engine}


if __name__ == "__main__":
    work.command(run, tuple(ENGINES))
