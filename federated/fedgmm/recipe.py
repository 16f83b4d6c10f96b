"""The recipe: deal the rows, let server and clients talk, and put what was found into words."""

import logging
from collections.abc import Sequence

from flwr.serverapp import Grid

from cluster.errors import CorymbError
from cluster.evidence import Result
from cluster.run import Run
from federated.engine import in_process, simulate
from federated.federation import Federation
from federated.fedgmm.analyse import Findings, analyse
from federated.fedgmm.client_app import DealtRows, make_client_app
from federated.fedgmm.config import Config
from federated.fedgmm.present import present
from federated.fedgmm.studies import Study, deal_all, studies

CLIENTS = "clients"
"""Folder of the run directory with the rows that were dealt to simulated clients."""


def run(config: Config, run: Run) -> Result:
    """Analyse every study of the configuration and report on all of them."""
    found = studies(config)
    for study in found:
        for warning in study.dataset.warnings:
            run.warn(warning)
    folder = run.path / CLIENTS
    deal_all(found, folder)

    def server(grid: Grid) -> list[Findings]:
        return converse(grid, found, config, run)

    app = make_client_app(DealtRows(str(folder)))
    most = max(len(study.parts) for study in found)
    if config.engine == "in_process":
        findings = in_process(server, app, most)
    else:
        if run.session is None:
            raise CorymbError("engine 'simulation' needs a Ray session; use engine 'in_process'")
        findings = simulate(server, app, most, run.session)
    logging.getLogger("corymb").info("analysed %d studies", len(findings))
    return present(config, findings, run)


def converse(grid: Grid, found: Sequence[Study], config: Config, run: Run) -> list[Findings]:
    """The server's side: gather the clients of each study in turn and analyse it."""
    findings: list[Findings] = []
    for study in found:
        federation = Federation.gather(grid, len(study.parts), study.name, run.check_stop)
        findings.append(analyse(federation, study, config, run))
    return findings
