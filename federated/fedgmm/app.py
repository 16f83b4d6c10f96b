"""The Flower app: what `flwr run .` starts, without the corymb command.

The run configuration in pyproject.toml names a preset and `--set`-like changes; the number of
clients is the number of nodes that Flower's federation has. Every simulated client deals itself its
own rows from that configuration, which is the same deal everywhere because it depends on the seed
alone.
"""

import time
from functools import lru_cache
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from cluster import config as configuration
from cluster.run import Run
from federated.fedgmm.client_app import make_client_app
from federated.fedgmm.config import Config
from federated.fedgmm.present import present
from federated.fedgmm.recipe import converse
from federated.fedgmm.rows import Rows
from federated.fedgmm.studies import studies

SETTLED_SECONDS = 1.0
"""How long the number of connected nodes must stay the same before it counts."""


def resolve(preset: str, changes: str, clients: int) -> configuration.Loaded:
    """Resolve a preset with space-separated changes for that many clients."""
    sets = [*changes.split(), f"partition.clients={clients}"]
    return configuration.load(None, recipe="fedgmm", preset=preset, sets=sets)


def own_rows(context: Context, deal: str) -> tuple[Rows, str]:
    """Rows and label of this node in the named deal."""
    node = context.node_config
    dealt = _dealt(*_asked(context), int(node["num-partitions"]))
    return dealt[deal, int(node["partition-id"])]


def _asked(context: Context) -> tuple[str, str]:
    return str(context.run_config["preset"]), str(context.run_config["set"])


@lru_cache(maxsize=1)
def _dealt(preset: str, changes: str, clients: int) -> dict[tuple[str, int], tuple[Rows, str]]:
    """All clients' rows of a simulation; kept, since a worker serves many messages."""
    config = resolve(preset, changes, clients).config
    assert isinstance(config, Config)
    return {
        (study.name, i): (study.dataset.rows.take(part), study.labels[i])
        for study in studies(config)
        for i, part in enumerate(study.parts)
    }


def count_nodes(grid: Grid) -> int:
    """Number of connected nodes once it no longer changes."""
    count = 0
    while count == 0 or count != len(list(grid.get_node_ids())):
        count = len(list(grid.get_node_ids()))
        time.sleep(SETTLED_SECONDS)
    return count


client_app = make_client_app(own_rows)

server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Analyse every study with the connected clients and write a run directory."""
    loaded = resolve(*_asked(context), count_nodes(grid))
    config = loaded.config
    assert isinstance(config, Config)
    run = Run.open(
        recipe=config.recipe,
        config_yaml=configuration.dump(config),
        origins=loaded.origins,
        output=Path(config.output),
    )
    with run:
        result = present(config, converse(grid, studies(config), config, run), run)
        run.close(result)
    # Flower packs an app without its HTML template, so the report is written by the command.
    print(f"{result.summary}; `corymb report {run.path}` writes the report")
