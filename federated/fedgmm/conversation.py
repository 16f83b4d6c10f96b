"""How a study gets its clients: the engine that runs them, and the federation that asks them."""

from collections.abc import Callable
from typing import TypeVar

from flwr.serverapp import Grid

from cluster.errors import CorymbError
from cluster.run import Run
from federated.engine import in_process, simulate, stock
from federated.federation import Federation
from federated.fedgmm.config import Config
from federated.hosting import CohortApp
from federated.rounds import LostClientsError, RoundLog, Rules

T = TypeVar("T")

CLIENTS = "clients"
"""Folder of the run directory with the rows that were dealt to simulated clients."""

ROUNDS = "rounds.jsonl"
"""File of the run directory that says who took part in each round."""


def on_engine(
    engine: str, server: Callable[[Grid], T], app: CohortApp, clients: int, run: Run
) -> T:
    """Run the server's side against simulated clients, on the engine of the configuration."""
    if engine == "in_process":
        return in_process(server, app, clients)
    if run.session is None:
        raise CorymbError(f"engine '{engine}' needs a Ray session; use engine 'in_process'")
    if engine == "flower":
        return stock(server, app, clients, run.session)
    return simulate(server, app, clients)


def with_clients(
    grid: Grid,
    study: str,
    clients: int,
    config: Config,
    run: Run,
    analyse: Callable[[Federation], T],
) -> T:
    """Gather the clients of a study and analyse it.

    Clients that stay away from a sum without breaking the quorum are left out, and the study
    begins again without them.
    """
    federation = Federation.gather(
        grid,
        clients,
        study,
        rules=Rules(config.federation.quorum, config.federation.timeout),
        check=run.check_stop,
        observe=RoundLog(run.artifact(ROUNDS), study),
    )
    while True:
        try:
            return analyse(federation)
        except LostClientsError as error:
            run.warn(f"{study}: {error}; the study begins again without them")
            federation = federation.without(error.failed)
