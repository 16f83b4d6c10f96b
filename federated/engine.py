"""Running a server's logic against simulated clients: on Ray, in this process, or Flower's way.

`simulate` has Ray actors serve the clients; `in_process` calls them here, without Ray, for tests
and the plain Python interface; `stock` is Flower's own simulation engine, to compare with. The same
server and client apps run on all of them.
"""

import logging
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from cluster.session import Session
from federated import identity
from federated.grid import InProcessGrid, RayGrid

T = TypeVar("T")

CLIENT_CPUS = 1.0
"""CPUs that one worker holds; as many workers are started as fit."""


def simulate(
    server: Callable[[Grid], T], client_app: ClientApp, clients: int, *, seed: int = 0
) -> T:
    """Run `server` against `clients` simulated clients on the Ray that this process is part of.

    Returns what `server` returns and raises what it raises. Ray is neither started nor stopped, so
    this works in a Tune trial as well. `seed` is that of the global random numbers, from which
    Flower's own strategies sample clients; their state is put back afterwards.
    """
    with _simulation(seed), RayGrid(client_app, clients, CLIENT_CPUS) as grid:
        return server(grid)


def in_process(
    server: Callable[[Grid], T], client_app: ClientApp, clients: int, *, seed: int = 0
) -> T:
    """Run `server` against `clients` clients that are called in this process, in order."""
    with _simulation(seed):
        return server(InProcessGrid(client_app, clients))


def stock(server: Callable[[Grid], T], client_app: ClientApp, clients: int, session: Session) -> T:
    """Run `server` on Flower's own simulation engine, on the session's Ray.

    That engine ends by disconnecting from Ray; `session.ensure()` is called before, so that
    simulations can follow each other.
    """
    from flwr.simulation import run_simulation

    session.ensure()
    _quiet()
    outcome: list[T] = []
    raised: list[BaseException] = []
    app = ServerApp()

    @app.main()
    def main(grid: Grid, _: Context) -> None:
        try:
            outcome.append(server(grid))
        except BaseException as error:  # carried to the caller below, whatever it is
            raised.append(error)

    run_simulation(
        server_app=app,
        client_app=client_app,
        num_supernodes=clients,
        backend_config={"client_resources": {"num_cpus": CLIENT_CPUS, "num_gpus": 0.0}},
    )
    if raised:
        raise raised[0]
    return outcome[0]


@contextmanager
def _simulation(seed: int) -> Iterator[None]:
    """Flower's identity for the server, and its random numbers, for the length of a simulation."""
    _quiet()
    before = random.getstate()
    random.seed(seed)
    try:
        with identity.assumed(identity.SERVER_NODE):
            yield
    finally:
        random.setstate(before)


def _quiet() -> None:
    """Keep Flower's own log and tracebacks out of the terminal; they go to the run's log.

    What a client failed at reaches the person as the one sentence of a RoundError.
    """
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    for handler in logging.getLogger("flwr").handlers:
        if not isinstance(handler, logging.FileHandler):
            handler.setLevel(logging.CRITICAL + 1)
