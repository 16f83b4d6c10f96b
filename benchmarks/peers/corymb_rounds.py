"""The rounds through our own engine: the apps of `flower_rounds`, carried by `federated.engine`."""

from collections.abc import Callable
from typing import Any

from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from benchmarks.peers import work
from benchmarks.peers.flower_rounds import client_app, serve
from federated.engine import in_process

Carrier = Callable[[Callable[[Grid], work.Network], ClientApp, int], work.Network]

ENGINES: dict[str, Carrier] = {"in_process": in_process}
"""What can carry the messages. An engine on Ray gets its place here."""


def run(clients: int, rounds: int, engine: str = "in_process") -> dict[str, Any]:
    """Play the rounds with one of `ENGINES`."""
    clock = work.Clock(rounds, work.born())
    carry = ENGINES[engine]
    network = carry(lambda grid: serve(grid, clients, clock, rounds), client_app, clients)
    measured = work.outcome("corymb", "corymb", clients, rounds, clock, network)
    return {**measured, "engine": engine}


if __name__ == "__main__":
    work.command(run, tuple(ENGINES))
