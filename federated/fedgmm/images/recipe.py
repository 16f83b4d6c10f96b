"""Image scenarios as part of the recipe: deal, let server and clients talk, put it into words."""

from functools import partial
from pathlib import Path

from flwr.serverapp import Grid

from cluster.evidence import Result
from cluster.run import Run
from federated.fedgmm.client_app import DealtRows
from federated.fedgmm.config import Config
from federated.fedgmm.conversation import CLIENTS, on_engine, with_clients
from federated.fedgmm.images.analyse import ImageFindings, ImageStudy, analyse_images
from federated.fedgmm.images.client import make_image_app
from federated.fedgmm.images.pools import open_pool
from federated.fedgmm.images.present import present_images
from federated.fedgmm.images.rows import ImageRows
from federated.fedgmm.images.scenarios import draw_images
from federated.fedgmm.rows import Names
from federated.fedgmm.studies import deal_once
from federated.partition import quantity
from federated.streams import stream


def run_images(config: Config, run: Run) -> Result:
    """Analyse the image scenario of the configuration under every seed."""
    found = studies(config)
    folder = run.path / CLIENTS
    names = Names(y="y", x=("x",), z=("z",))
    for study in found:
        deal_once(study.name, study.data.rows, study.parts, names, study.labels, folder)

    def server(grid: Grid) -> list[ImageFindings]:
        return [
            with_clients(
                grid, study.name, len(study.parts), config, run,
                partial(analyse_images, study=study, config=config, run=run),
            )
            for study in found
        ]  # fmt: skip

    app = make_image_app(DealtRows(str(folder), ImageRows), config.federation.cohorts)
    findings = on_engine(config.engine, server, app, config.partition.clients, run)
    return present_images(config, findings, run)


def studies(config: Config) -> list[ImageStudy]:
    """One study a seed."""
    data, p = config.data, config.partition
    pool = open_pool(None if data.path is None else Path(data.path))
    found = []
    for seed in config.seeds:
        drawn = draw_images(data.source, data.scenario, data.process, data.rows, pool, seed)
        parts = quantity(data.rows, p.clients, p.alpha, stream(seed, "partition"), p.minimum)
        labels = [f"client {i}" for i in range(len(parts))]
        found.append(ImageStudy(f"{data.source}-{seed}", drawn, parts, labels, seed))
    return found
