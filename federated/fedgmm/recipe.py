"""The recipe: deal the rows, let server and clients talk, and put what was found into words."""

import logging
from collections.abc import Callable, Sequence

from flwr.serverapp import Grid

from cluster.errors import CorymbError
from cluster.evidence import Result
from cluster.run import Run
from federated.engine import in_process, simulate, stock
from federated.federation import Federation
from federated.fedgmm.analyse import analyse
from federated.fedgmm.client_app import DealtRows, make_client_app
from federated.fedgmm.config import Config
from federated.fedgmm.present import Found, present
from federated.fedgmm.present_private import left_out
from federated.fedgmm.private_analysis import analyse_privately
from federated.fedgmm.studies import Study, deal_all, studies
from federated.hosting import CohortApp
from federated.rounds import LostClientsError, RoundLog, Rules

CLIENTS = "clients"
"""Folder of the run directory with the rows that were dealt to simulated clients."""

ROUNDS = "rounds.jsonl"
"""File of the run directory that says who took part in each round."""


def run(config: Config, run: Run) -> Result:
    """Analyse every study of the configuration and report on all of them."""
    found = studies(config)
    for study in found:
        for warning in study.dataset.warnings:
            run.warn(warning)
    folder = run.path / CLIENTS
    deal_all(found, folder)

    def server(grid: Grid) -> list[Found]:
        return converse(grid, found, config, run)

    if config.privacy is not None:
        run.say(left_out(config))
    app = make_client_app(DealtRows(str(folder)), config.federation.cohorts)
    most = max(len(study.parts) for study in found)
    findings = _on_engine(config.engine, server, app, most, run)
    logging.getLogger("corymb").info("analysed %d studies", len(findings))
    return present(config, findings, run)


def _on_engine(
    engine: str,
    server: Callable[[Grid], list[Found]],
    app: CohortApp,
    clients: int,
    run: Run,
) -> list[Found]:
    if engine == "in_process":
        return in_process(server, app, clients)
    if run.session is None:
        raise CorymbError(f"engine '{engine}' needs a Ray session; use engine 'in_process'")
    if engine == "flower":
        return stock(server, app, clients, run.session)
    return simulate(server, app, clients)


def converse(grid: Grid, found: Sequence[Study], config: Config, run: Run) -> list[Found]:
    """The server's side: gather the clients of each study in turn and analyse it.

    Clients that stay away from a sum without breaking the quorum are left out, and the study
    begins again without them.
    """
    findings: list[Found] = []
    for study in found:
        federation = Federation.gather(
            grid,
            len(study.parts),
            study.name,
            rules=Rules(config.federation.quorum, config.federation.timeout),
            check=run.check_stop,
            observe=RoundLog(run.artifact(ROUNDS), study.name),
        )
        while True:
            try:
                if config.privacy is None:
                    findings.append(analyse(federation, study, config, run))
                else:
                    findings.append(analyse_privately(federation, study, config.privacy, run))
                break
            except LostClientsError as error:
                run.warn(f"{study.name}: {error}; the study begins again without them")
                federation = federation.without(error.failed)
    return findings
