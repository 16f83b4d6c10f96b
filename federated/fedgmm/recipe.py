"""The recipe: deal the rows, let server and clients talk, and put what was found into words."""

import logging
from collections.abc import Sequence
from functools import partial

from flwr.serverapp import Grid

from cluster.evidence import Result
from cluster.run import Run
from federated.federation import Federation
from federated.fedgmm.analyse import analyse
from federated.fedgmm.client_app import DealtRows, make_client_app
from federated.fedgmm.config import IMAGES, Config
from federated.fedgmm.conversation import CLIENTS, on_engine, with_clients
from federated.fedgmm.present import Found, present
from federated.fedgmm.private.analyse import analyse_privately
from federated.fedgmm.private.present import left_out
from federated.fedgmm.studies import Study, deal_all, studies


def run(config: Config, run: Run) -> Result:
    """Analyse every study of the configuration and report on all of them."""
    if config.data.source in IMAGES:
        from federated.fedgmm.images.recipe import run_images  # scikit-learn, only for its digits

        return run_images(config, run)
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
    findings = on_engine(config.engine, server, app, most, run)
    logging.getLogger("corymb").info("analysed %d studies", len(findings))
    return present(config, findings, run)


def converse(grid: Grid, found: Sequence[Study], config: Config, run: Run) -> list[Found]:
    """The server's side: gather the clients of each study in turn and analyse it."""

    def analysed(federation: Federation, study: Study) -> Found:
        if config.privacy is not None:
            return analyse_privately(federation, study, config.privacy, run)
        return analyse(federation, study, config, run)

    return [
        with_clients(
            grid, study.name, len(study.parts), config, run, partial(analysed, study=study)
        )
        for study in found
    ]
