"""The rounds in nvflare's simulator: a process for the server and one for each client.

A process a client is what its recipes set, and what 10 clients get. 100 are too many for a small
machine (0.4 GB each, and those that start late give up connecting), so at most `PROCESSES` live at
a time: nvflare's simulator then starts a process anew for every client and round.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from nvflare.app_common.default_component_policy import (
    DEFAULT_CLASS_ALLOW_LIST,
)
from nvflare.job_config.api import FedJob

from benchmarks.peers import nvflare_parts, work

PROCESSES = 10
"""Clients alive at a time."""


def _allow_ours(workspace: Path) -> None:
    """Write the site's policy: only listed components are built, nvflare's and these two."""
    allowed = [*DEFAULT_CLASS_ALLOW_LIST, "benchmarks.peers.nvflare_parts."]
    policy = {"format_version": 2, "class_allow_list": allowed}
    path = workspace / "local" / "resources.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(policy))


def run(clients: int, rounds: int) -> dict[str, Any]:
    """Play the rounds in a folder that is thrown away."""
    root = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    job = FedJob(name="rounds", min_clients=clients)
    job.set_app_packages(["benchmarks"])  # imported from where they are, not copied
    job.to_clients(nvflare_parts.Trainer(), tasks=["train"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "measured.json"
        job.to_server(nvflare_parts.TimedFedAvg(clients, rounds, work.born(), str(path)))
        workspace = Path(folder) / "workspace"
        _allow_ours(workspace)
        threads = min(clients, PROCESSES)
        job.simulator_run(str(workspace), n_clients=clients, threads=threads, log_config="ERROR")
        measured: dict[str, Any] = json.loads(path.read_text())
    return measured


if __name__ == "__main__":
    work.command(run)
