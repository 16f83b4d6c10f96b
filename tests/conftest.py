"""What all tests share: a quiet environment, and one Ray cluster for those that need it."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

AUTHENTICATION = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ.pop("RAY_ADDRESS", None)  # a test never joins the cluster of whoever runs it
for _name in AUTHENTICATION:
    os.environ.pop(_name, None)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths, such as the default `runs/`, are in the test's own folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def _cluster() -> Iterator[tuple[str, Path]]:
    """Address and token file of a cluster of one node with two CPUs, without a dashboard."""
    from ray.cluster_utils import Cluster

    from cluster.gcs import forget_authentication

    folder = Path(tempfile.mkdtemp(prefix="corymb-t", dir="/tmp"))  # sockets need a short path
    token = folder / "token"
    token.touch(0o600)
    token.write_text(secrets.token_hex(32))
    with pytest.MonkeyPatch.context() as patch:
        _authenticate(patch, token)
        forget_authentication()
        node = {"num_cpus": 2, "include_dashboard": False, "temp_dir": str(folder / "ray")}
        cluster = Cluster(initialize_head=True, head_node_args=node)
    try:
        yield cluster.address, token
    finally:
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def ray_cluster(_cluster: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Address of the cluster that all tests share, in RAY_ADDRESS: sessions join it.

    A test connects through `cluster.session.Session` or a run; it is disconnected afterwards.
    """
    import ray

    address, token = _cluster
    _authenticate(monkeypatch, token)
    monkeypatch.setenv("RAY_ADDRESS", address)
    yield address
    ray.shutdown()


def _authenticate(patch: pytest.MonkeyPatch, token: Path) -> None:
    patch.setenv("RAY_AUTH_MODE", "token")
    patch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
