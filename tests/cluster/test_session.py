"""Starting and joining Ray: what a session leaves behind, whom it lets in, when it gives up."""

import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from cluster import session as module
from cluster.config import ClusterSettings
from cluster.errors import ClusterUnreachableError, ResourcesError
from cluster.evidence import Result
from cluster.joining import reachable
from cluster.placement import unplaceable
from cluster.plan import Plan
from cluster.run import Run
from cluster.session import Session, temporary_folder

ROOT = Path(__file__).resolve().parents[2]

SET_BY_RAY = {"RAY_CLIENT_MODE", "PYTHONBREAKPOINT"}
"""Variables that Ray sets in the process that uses it, whoever starts it."""


def python(
    *arguments: str, folder: Path, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python elsewhere, with our packages but none of this process's RAY_ variables."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "PYTHON"))}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=clean | {"PYTHONPATH": str(ROOT)} | dict(environ or {}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


# A session from beginning to end


@pytest.fixture(scope="module")
def twice() -> Iterator[list[dict[str, Any]]]:
    """What two sessions in one process saw, with a home and a temporary folder to themselves."""
    script = Path(__file__).with_name("session_twice.py")
    with tempfile.TemporaryDirectory(prefix="c-") as folder:
        places = {"HOME": Path(folder) / "home", "TMPDIR": Path(folder) / "t"}
        for place in places.values():
            place.mkdir()
        environ = {name: str(place) for name, place in places.items()}
        done = python(str(script), folder=Path(folder), environ=environ)
        assert done.returncode == 0, done.stderr
        yield [{**seen, "terminal": done.stderr} for seen in json.loads(done.stdout)]


def test_token_is_private_and_outside_of_home_and_checkout(twice: list[dict[str, Any]]) -> None:
    for seen in twice:
        assert seen["mode"] == 0o600
        assert len(seen["secret"]) == 64
        assert Path(seen["token"]).parts[-3] == "t"  # the temporary folder, not `home`
        assert not Path(seen["token"]).is_relative_to(ROOT)
    assert twice[0]["secret"] != twice[1]["secret"]


def test_workers_import_our_packages_in_any_folder(twice: list[dict[str, Any]]) -> None:
    ours = [
        str(ROOT / name / "__init__.py") for name in ("cluster", "envs", "federated", "trainers")
    ]
    assert [seen["places"] for seen in twice] == [ours, ours]
    assert [seen["cpus"] for seen in twice] == [[1.0], [1.0]]


def test_ensure_brings_back_the_same_session(twice: list[dict[str, Any]]) -> None:
    assert twice[0]["again"] == twice[0]["places"]
    assert twice[0]["kept"]


def test_nothing_is_left(twice: list[dict[str, Any]]) -> None:
    for seen in twice:
        assert seen["processes"] > 0
        assert seen["processes_left"] == 0
        assert seen["left"] == []
        assert not seen["connected"]
        assert seen["speaks"]
        assert set(seen["changed"]) <= SET_BY_RAY


def test_rays_warnings_stay_out_of_the_terminal(twice: list[dict[str, Any]]) -> None:
    assert "a worker is slow" not in twice[0]["terminal"]
    assert twice[0]["terminal"].count("a worker died") == 2  # one a session


def test_rays_warnings_are_in_the_log(ray_session: Session, tmp_path: Path) -> None:
    ray_session.ensure()
    with Run.open(recipe="toy", config_yaml="", origins={}, output=tmp_path) as run:
        logging.getLogger("ray.train").warning("a worker is slow")
        run.close(Result({}, {}, [0]))
    assert "a worker is slow" in (run.path / "log.txt").read_text()


def test_temporary_folder_is_short_enough_for_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/scratch/short")
    assert temporary_folder() == Path("/scratch/short")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/var/folders/" + 40 * "x")
    assert temporary_folder() == Path("/tmp")


# Joining

JOIN = """
import sys, ray
from cluster.config import ClusterSettings
from cluster.errors import CorymbError
from cluster.session import Session
try:
    with Session(ClusterSettings(address=sys.argv[1])) as session:
        print(session.embedded, [node["CPU"] for node in session.nodes()])
except CorymbError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def gcs_address(session: Session) -> str:
    import ray

    session.ensure()
    return str(ray.get_runtime_context().gcs_address)


def test_joining_with_the_token(ray_session: Session, tmp_path: Path) -> None:
    address = gcs_address(ray_session)
    token = {name: os.environ[name] for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")}
    done = python("-c", JOIN, address, folder=tmp_path, environ=token)
    assert done.stdout == "False [2.0]\n", done.stderr
    assert len(ray_session.nodes()) == 1  # and it is still there after the other left


@pytest.mark.parametrize("token", [None, "wrong", "absent"])
def test_strangers_are_refused(token: str | None, ray_session: Session, tmp_path: Path) -> None:
    address = gcs_address(ray_session)
    (tmp_path / "wrong").write_text(64 * "0")
    environ = {}
    if token is not None:
        environ = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(tmp_path / token)}
    begin = time.monotonic()
    done = python("-c", JOIN, address, folder=tmp_path, environ=environ)
    assert done.returncode == ClusterUnreachableError.exit_code, done.stdout + done.stderr
    assert f"{address} does not let this run join" in done.stdout
    assert "RAY_AUTH_TOKEN_PATH" in done.stdout
    assert time.monotonic() - begin < 10


def test_address_where_nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    before = dict(os.environ)
    begin = time.monotonic()
    with pytest.raises(ClusterUnreachableError, match=r"127\.0\.0\.1:9"):
        reachable("127.0.0.1:9")
    code = "from cluster.session import Session; from cluster.config import ClusterSettings\n"
    code += "with Session(ClusterSettings()): pass"
    done = python("-c", code, folder=ROOT, environ={"RAY_ADDRESS": "127.0.0.1:9"})
    assert "ClusterUnreachableError: No cluster answers at 127.0.0.1:9" in done.stderr
    assert time.monotonic() - begin < 10
    assert dict(os.environ) == before


def test_address_where_something_else_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        for url in (address, f"ray://{address}"):
            with pytest.raises(ClusterUnreachableError, match="not Ray, DEADLINE_EXCEEDED"):
                reachable(url, 0.5)

    other = grpc.server(ThreadPoolExecutor(1))
    address = f"127.0.0.1:{other.add_insecure_port('127.0.0.1:0')}"
    other.start()
    with pytest.raises(ClusterUnreachableError, match="not Ray, UNIMPLEMENTED"):
        reachable(address)
    other.stop(1).wait()


def test_a_cluster_that_no_longer_lives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray._private.services.find_gcs_addresses", set)  # whatever runs here
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:9")
    begin = time.monotonic()
    with pytest.raises(ClusterUnreachableError, match=r"No cluster answers at \S+:9 "):
        reachable("auto")
    assert time.monotonic() - begin < 10


def test_no_cluster_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: str) -> str:
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setattr("ray._private.services.canonicalize_bootstrap_address", none)
    with pytest.raises(ClusterUnreachableError, match="No Ray cluster was started"):
        reachable("auto")


def test_local_means_the_embedded_ray_with_its_token(tmp_path: Path) -> None:
    code = """if True:
        import json, os
        from cluster.config import ClusterSettings
        from cluster.session import Session
        with Session(ClusterSettings(num_cpus=1)) as session:
            inside = [os.environ.get(f"RAY_AUTH_{name}") for name in ("MODE", "TOKEN")]
            print(json.dumps([session.embedded, len(session.nodes()), *inside]))
        """
    done = python(
        "-c", code, folder=tmp_path, environ={"RAY_ADDRESS": "local", "RAY_AUTH_TOKEN": "theirs"}
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [True, 1, "token", None]


def test_workers_of_a_joined_cluster_import_this_checkout(
    ray_session: Session, tmp_path: Path
) -> None:
    address = gcs_address(ray_session)
    environ = {name: os.environ[name] for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")}
    copy = tmp_path / "checkout"
    for room in ("cluster", "federated"):
        shutil.copytree(ROOT / room, copy / room)
    code = """if True:
        import ray
        from cluster.config import ClusterSettings
        from cluster.session import Session

        @ray.remote
        def place():
            import federated
            return federated.__file__

        with Session(ClusterSettings(address="ADDRESS")):
            print(ray.get(place.remote()))
        """
    environ["PYTHONPATH"] = str(copy)
    done = python("-c", code.replace("ADDRESS", address), folder=tmp_path, environ=environ)
    assert done.stdout.strip() == str(copy / "federated" / "__init__.py"), done.stderr


@pytest.mark.slow
def test_flower_simulations_follow_each_other_and_stay_out_of_home(tmp_path: Path) -> None:
    script = Path(__file__).with_name("flower_twice.py")
    done = python(str(script), folder=tmp_path, environ={"HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 2
    for seen in found:
        assert seen["same"]  # it attached to the session's Ray
        assert not seen["connected"]  # and closed it: why `ensure` exists
        assert seen["clients"] == [[0, 1, 2, 3]] * 2
        assert all(actors <= 2 for actors in seen["actors"])
    assert list(tmp_path.iterdir()) == []


# Preflight


class Cluster(Session):
    """A session whose nodes are given: one list for each time that it is asked."""

    def __init__(self, *views: Sequence[dict[str, float]], wait: float = 0.0) -> None:
        self.said: list[str] = []
        super().__init__(ClusterSettings(wait_for_resources=wait), say=self.said.append)
        self._views = list(views)

    def nodes(self) -> list[dict[str, float]]:
        return list(self._views.pop(0) if len(self._views) > 1 else self._views[0])


def plan(*bundles: Mapping[str, float]) -> Plan:
    return Plan(bundles, 1, "rounds", ("clients.cpus", "cluster.num_cpus"))


def test_preflight_against_ray(ray_session: Session) -> None:
    ray_session.ensure()
    ray_session.preflight(plan({"CPU": 1.0}, {"CPU": 1.0}))
    with pytest.raises(ResourcesError) as caught:
        ray_session.preflight(plan({"CPU": 3.0}))
    message = str(caught.value)
    assert "needs 3 CPU on one node; the largest node has 2" in message
    assert "clients.cpus or cluster.num_cpus" in message


def test_preflight_gives_up_at_once_with_both_numbers() -> None:
    begin = time.monotonic()
    with pytest.raises(ResourcesError, match=r"3 CPU \(there are 2 on 2 nodes\)"):
        Cluster([{"CPU": 1.0}, {"CPU": 1.0}]).preflight(plan(*3 * [{"CPU": 1.0}]))
    assert time.monotonic() - begin < 1


def test_preflight_waits_for_the_cluster_to_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    small, large = [{"CPU": 1.0}], [{"CPU": 1.0}, {"CPU": 4.0}]
    growing = Cluster(small, small, large, wait=30.0)
    growing.preflight(plan({"CPU": 4.0}))
    assert len(growing.said) == 2
    assert "needs 4 CPU on one node; the largest node has 1" in growing.said[0]

    with pytest.raises(ResourcesError, match=r"4 CPU .* has 1 after waiting 0\.05 s; change"):
        Cluster(small, wait=0.05).preflight(plan({"CPU": 4.0}))


@pytest.mark.parametrize(
    ("bundles", "nodes", "lack"),
    [
        ([], [], None),
        ([{"CPU": 1}], [], "1 CPU on one node; the largest node has 0"),
        ([{"CPU": 1}, {"CPU": 3}], [{"CPU": 3}, {"CPU": 1}], None),  # the largest goes first
        ([{"CPU": 2}, {"CPU": 2}], [{"CPU": 3}, {"CPU": 1}], "4 CPU (there are 4 on 2 nodes)"),
        ([{"CPU": 1, "GPU": 1}], [{"CPU": 8}], "1 GPU on one node; the largest node has 0"),
        ([{"CPU": 1, "GPU": 0.5}] * 2, [{"CPU": 2, "GPU": 1}], None),
        ([{"GPU": 1}] * 2, [{"CPU": 2, "GPU": 1}], "2 GPU (there are 1 on 1 node)"),
        ([{"CPU": 0.1}] * 10, [{"CPU": 1}], None),
        (  # a bundle without a GPU leaves room for one with
            [{"CPU": 1, "GPU": 1}, {"CPU": 4}],
            [{"CPU": 4, "GPU": 1}, {"CPU": 4}],
            None,
        ),
        (
            [{"CPU": 2, "GPU": 1}],
            [{"CPU": 8}, {"CPU": 1, "GPU": 1}],
            "2 CPU and 1 GPU on one node; the nodes have 8 CPU and 0 GPU, or 1 CPU and 1 GPU",
        ),
    ],
)
def test_placement(
    bundles: list[dict[str, float]], nodes: list[dict[str, float]], lack: str | None
) -> None:
    found = unplaceable(bundles, nodes)
    assert found is None if lack is None else (found is not None and lack in found)
    assert all(node == copy for node, copy in zip(nodes, [dict(n) for n in nodes], strict=True))
