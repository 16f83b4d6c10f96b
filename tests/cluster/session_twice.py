"""Two sessions in one process, as test_session.py starts it; prints what it saw as JSON.

Ray is imported before the first session, and shut down in the middle of it, as Flower does.
"""

import json
import logging
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import ray

from cluster.config import ClusterSettings
from cluster.session import Session


def places() -> list[str]:
    """Where a process has our packages from."""
    import cluster
    import envs
    import federated
    import trainers

    return [str(module.__file__) for module in (cluster, envs, federated, trainers)]


def environment() -> dict[str, str]:
    return dict(os.environ)


def processes(mark: str) -> int:
    """Number of processes with `mark` in their command line."""
    count = 0
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            count += mark.encode() in file.read_bytes()
        except OSError:
            continue  # it ended meanwhile
    return count


def levels() -> list[int]:
    """Of Ray's logger and its handlers."""
    logger = logging.getLogger("ray")
    return [logger.level, *(handler.level for handler in logger.handlers)]


def once(shutdown: bool) -> dict[str, Any]:
    before, spoken = environment(), levels()
    with Session(ClusterSettings(num_cpus=1)) as session:
        token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
        seen: dict[str, Any] = {
            "token": str(token),
            "mode": stat.S_IMODE(token.stat().st_mode),
            "secret": token.read_text(),
            "places": ray.get(ray.remote(places).remote()),
            "cpus": [node["CPU"] for node in session.nodes()],
            "processes": processes(str(token.parent)),
        }
        logging.getLogger("ray.train").warning("a worker is slow")
        logging.getLogger("ray.train").error("a worker died")
        if shutdown:
            ray.shutdown()
            session.ensure()
            seen["again"] = ray.get(ray.remote(places).remote())
            seen["kept"] = token.read_text() == seen["secret"]
    after = environment()
    seen["speaks"] = levels() == spoken
    seen["changed"] = sorted(k for k in before | after if before.get(k) != after.get(k))
    seen["connected"] = ray.is_initialized()
    seen["left"] = [str(p) for f in (tempfile.gettempdir(), Path.home()) for p in Path(f).iterdir()]
    seen["processes_left"] = processes(str(token.parent))
    return seen


if __name__ == "__main__":
    print(json.dumps([once(shutdown=True), once(shutdown=False)]))
