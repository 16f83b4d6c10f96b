"""Sessions on a real Ray: the shared cluster, and embedded ones in processes of their own."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from cluster.config import ClusterSettings
from cluster.errors import ClusterUnreachableError, ResourcesError, UsageError
from cluster.plan import Plan
from cluster.session import Session, unplaceable

ROOT = Path(__file__).parents[2]


def python(script: str, folder: Path, **variables: str) -> Any:
    """Run a script in a process of its own; return the JSON of its last line of output.

    The home folder, given to it empty, must stay empty.
    """
    home = folder / "home"
    home.mkdir()
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RAY_", "PYTHON")) and name != "TMPDIR"
    }
    path = folder / "script.py"
    path.write_text(textwrap.dedent(script))
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=folder,
        env=environment | {"HOME": str(home), "PYTHONPATH": str(ROOT)} | variables,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(home.iterdir()) == []
    return json.loads(done.stdout.splitlines()[-1])


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


JOIN = """
import sys
from cluster.config import ClusterSettings
from cluster.errors import ClusterUnreachableError
from cluster.session import Session

try:
    with Session(ClusterSettings(address=sys.argv[1])):
        print("joined")
except ClusterUnreachableError as error:
    print(error)
"""

EMBEDDED = """
    import json, os, stat, subprocess, sys
    import ray
    from cluster.config import ClusterSettings
    from cluster.session import Session

    def join(address, **changes):
        without = {k: v for k, v in os.environ.items() if not k.startswith("RAY_AUTH")}
        command = [sys.executable, "join.py", address]
        done = subprocess.run(command, env=without | changes, capture_output=True, text=True)
        return done.stdout + done.stderr

    @ray.remote
    def import_ours():
        import cluster, federated
        return [cluster.__file__, federated.__file__]

    before = dict(os.environ)
    found = {"imports": [], "files": [], "modes": []}
    for turn in range(2):
        with Session(ClusterSettings(num_cpus=1)) as session:
            token = os.environ["RAY_AUTH_TOKEN_PATH"]
            folder = os.path.dirname(token)
            found["modes"] += [stat.S_IMODE(os.stat(p).st_mode) for p in (folder, token)]
            found["imports"].append(ray.get(import_ours.remote()))
            found["nodes"] = session.nodes()
            if turn == 0:
                ray.shutdown()  # as Flower's simulation does
                session.ensure()
                found["imports"].append(ray.get(import_ours.remote()))
                address = ray.get_runtime_context().gcs_address
                found["strangers"] = join(address)
                wrong = os.path.join(folder, "wrong")
                with open(wrong, "w") as file:
                    file.write("0" * 64)
                found["wrong"] = join(address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=wrong)
                found["friends"] = join(address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=token)
        found["files"].append(os.path.exists(folder))
    found["environment"] = dict(os.environ) == before
    print(json.dumps(found))
"""


def test_embedded_ray_is_private_leaves_nothing_and_starts_again(tmp_path: Path) -> None:
    (tmp_path / "join.py").write_text(JOIN)
    found = python(EMBEDDED, tmp_path)
    assert found["modes"] == [0o700, 0o600] * 2
    ours = [str(ROOT / room / "__init__.py") for room in ("cluster", "federated")]
    assert found["imports"] == [ours] * 3
    assert [node["CPU"] for node in found["nodes"]] == [1.0]
    assert "refuses this run's token" in found["strangers"]
    assert "refuses this run's token" in found["wrong"]
    assert found["friends"].strip() == "joined"
    assert found["files"] == [False, False]
    assert found["environment"] is True


def test_embedded_ray_ignores_a_token_and_a_long_temporary_folder(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 80)
    long.mkdir()
    found = python(
        """
        import json, os
        from cluster.config import ClusterSettings
        from cluster.session import Session

        try:
            with Session(ClusterSettings(num_cpus=1)):
                inside = [os.environ.get("RAY_AUTH_TOKEN"), os.environ["RAY_AUTH_TOKEN_PATH"]]
                raise KeyError("stop")
        except KeyError:
            pass
        after = [os.environ.get("RAY_AUTH_TOKEN"), os.path.exists(inside[1])]
        print(json.dumps(inside + after))
        """,
        tmp_path,
        TMPDIR=str(long),
        RAY_AUTH_TOKEN="theirs",
        RAY_ADDRESS="local",
    )
    assert found[0] is None
    assert found[1].startswith("/tmp/corymb-")
    assert found[2:] == ["theirs", False]


FLOWER = """
    import json, os, time
    import ray
    from flwr.app import Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation
    from cluster.config import ClusterSettings
    from cluster.session import Session

    client = ClientApp()

    @client.train()
    def train(message, context):
        import cluster  # a client imports our packages
        found = {"client": context.node_config["partition-id"], "pid": os.getpid()}
        return Message(RecordDict({"found": MetricRecord(found)}), reply_to=message)

    def simulate():
        server, seen = ServerApp(), []

        @server.main()
        def main(grid, context):
            seen.append(ray.get_runtime_context().gcs_address)
            while len(nodes := list(grid.get_node_ids())) < 4:  # they connect one by one
                time.sleep(0.1)
            for turn in range(2):
                messages = [Message(RecordDict(), node, "train") for node in nodes]
                replies = [reply for reply in grid.send_and_receive(messages, timeout=60)]
                assert not any(reply.has_error() for reply in replies)
                seen.append(sorted(int(r.content["found"]["client"]) for r in replies))
                seen.append(len({int(r.content["found"]["pid"]) for r in replies}))

        resources = {"client_resources": {"num_cpus": 1.0, "num_gpus": 0.0}}
        run_simulation(server, client, num_supernodes=4, backend_config=resources)
        return seen

    found = []
    with Session(ClusterSettings(num_cpus=2)) as session:
        for turn in range(2):
            session.ensure()
            ours = ray.get_runtime_context().gcs_address
            address, *seen = simulate()
            found.append([address == ours, ray.is_initialized(), *seen])
    print(json.dumps(found))
"""


@pytest.mark.slow
def test_flower_simulations_follow_each_other_on_the_session(tmp_path: Path) -> None:
    found = python(FLOWER, tmp_path, FLWR_TELEMETRY_ENABLED="0")
    for on_ours, still_connected, *rounds in found:
        assert on_ours is True
        assert still_connected is False  # why `ensure` exists
        assert rounds[0::2] == [[0, 1, 2, 3]] * 2
        assert all(actors <= 2 for actors in rounds[1::2])
    assert len(found) == 2


@pytest.mark.slow
def test_joining_a_cluster_that_ray_start_began(tmp_path: Path) -> None:
    port = free_port()
    folder = Path(tempfile.mkdtemp(prefix="corymb-t", dir="/tmp"))
    token = folder / "token"
    token.touch(0o600)
    token.write_text("a" * 64)
    variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    command = [
        str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--num-cpus=1",
        f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder / 'ray'}",
    ]  # fmt: skip
    script = """
        import json, os, time
        import ray
        from cluster.config import ClusterSettings
        from cluster.errors import ClusterUnreachableError
        from cluster.session import Session

        for attempt in range(60):
            try:
                session = Session(ClusterSettings()).__enter__()
                break
            except ClusterUnreachableError:
                time.sleep(1)

        @ray.remote
        def import_ours():
            import federated
            return federated.__file__

        found = [session.embedded, session.nodes()[0]["CPU"], ray.get(import_ours.remote())]
        session.__exit__(None, None, None)
        print(json.dumps(found))
        """
    with subprocess.Popen(
        command, env=os.environ | variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as head:
        try:
            found = python(script, tmp_path, RAY_ADDRESS=f"127.0.0.1:{port}", **variables)
        finally:
            head.terminate()
            head.wait(30)
            shutil.rmtree(folder, ignore_errors=True)
    assert found == [False, 1.0, str(ROOT / "federated" / "__init__.py")]


def test_joining_comes_back_after_a_shutdown(ray_cluster: str) -> None:
    import ray

    before = dict(os.environ)
    with Session(ClusterSettings()) as session:
        assert session.embedded is False
        ray.shutdown()
        session.ensure()
        assert [node["CPU"] for node in session.nodes()] == [2.0]
    assert not ray.is_initialized()
    assert dict(os.environ) == before


def test_a_session_inside_another_is_refused(ray_cluster: str) -> None:
    import ray

    with Session(ClusterSettings()):
        with pytest.raises(UsageError, match="already running"), Session(ClusterSettings()):
            pass
        assert ray.is_initialized()


def test_preflight_says_both_numbers_at_once(ray_cluster: str) -> None:
    with Session(ClusterSettings()) as session:
        session.preflight(Plan(({"CPU": 1.0}, {"CPU": 1.0}), 1, "rounds", ("a.b",)))
        began = time.monotonic()
        with pytest.raises(ResourcesError) as caught:
            session.preflight(Plan(({"CPU": 1.0},) * 3, 1, "rounds", ("a.b", "c")))
    assert time.monotonic() - began < 1.0
    assert str(caught.value) == (
        "The run needs 3 CPU at the same time; there are 2 CPU on 1 node; "
        "change a.b or c, or use a larger cluster"
    )


def test_preflight_waits_as_long_as_it_may(ray_cluster: str) -> None:
    said: list[str] = []
    with Session(ClusterSettings(wait_for_resources=0.3), say=said.append) as session:
        began = time.monotonic()
        with pytest.raises(
            ResourcesError, match=r"4 CPU on one node.* have 2 CPU after waiting 0.3 s"
        ):
            session.preflight(Plan(({"CPU": 4.0},), 1, "rounds", ("a.b",)))
    assert 0.3 <= time.monotonic() - began < 3.0
    assert said
    assert "waiting for the cluster to grow" in said[0]


def test_preflight_goes_on_once_the_cluster_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.session.POLL_SECONDS", 0.01)
    session = Session(ClusterSettings(wait_for_resources=5))
    views = iter([[{"CPU": 2.0}], [{"CPU": 2.0}], [{"CPU": 2.0}, {"CPU": 2.0}]])
    monkeypatch.setattr(session, "nodes", lambda: next(views))
    session.preflight(Plan(({"CPU": 2.0}, {"CPU": 1.0}), 1, "rounds", ()))
    assert list(views) == []


@pytest.mark.parametrize("listens", [False, True])
def test_an_address_without_ray_is_said_in_bounded_time(
    listens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.gcs.ANSWER_SECONDS", 1.0)
    port = free_port()
    before, began = dict(os.environ), time.monotonic()
    with socket.socket() as listener:
        if listens:  # accepts, and says nothing
            listener.bind(("", port))
            listener.listen()
        address = f"127.0.0.1:{port}"
        with (
            pytest.raises(ClusterUnreachableError, match=f"No cluster answers at {address}"),
            Session(ClusterSettings(address=address)),
        ):
            pass
    assert time.monotonic() - began < 8.0
    assert dict(os.environ) == before


@pytest.mark.parametrize("address", ["ray://head:10001", "http://head:8265", "head"])
def test_an_address_of_another_form_is_refused(address: str) -> None:
    with (
        pytest.raises(UsageError, match="expected HOST:PORT"),
        Session(ClusterSettings(address=address)),
    ):
        pass


def test_an_unknown_host_and_no_cluster_on_this_machine() -> None:
    for address in ("no-such-host.invalid:6379", "auto"):
        with pytest.raises(ClusterUnreachableError), Session(ClusterSettings(address=address)):
            pass


def test_a_token_mode_without_a_token_is_said(
    ray_cluster: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH")
    with (
        pytest.raises(ClusterUnreachableError, match="RAY_AUTH_TOKEN_PATH"),
        Session(ClusterSettings()),
    ):
        pass


@pytest.mark.parametrize(
    ("bundles", "nodes", "fits"),
    [
        ([{"CPU": 2.0}, {"CPU": 2.0}], [{"CPU": 2.0}, {"CPU": 2.0}], True),
        ([{"CPU": 3.0}], [{"CPU": 2.0}, {"CPU": 2.0}], False),
        ([{"CPU": 1.0}, {"CPU": 3.0}], [{"CPU": 3.0}, {"CPU": 1.0}], True),
        ([{"CPU": 1.0, "GPU": 1.0}], [{"CPU": 8.0}, {"CPU": 1.0, "GPU": 1.0}], True),
        ([{"CPU": 2.0, "GPU": 1.0}], [{"CPU": 8.0}, {"CPU": 1.0, "GPU": 1.0}], False),
        ([{"CPU": 1.0}], [], False),
        ([{"CPU": 0.1}] * 10, [{"CPU": 1.0}], True),
        ([{"GPU": 1.0, "CPU": 1.0}, {"CPU": 4.0}], [{"CPU": 4.0, "GPU": 1.0}, {"CPU": 4.0}], True),
    ],
)
def test_bundles_are_placed_whole(
    bundles: list[dict[str, float]], nodes: list[dict[str, float]], fits: bool
) -> None:
    assert (unplaceable(bundles, nodes) is None) is fits


def test_the_reason_names_what_no_single_node_has() -> None:
    reason = unplaceable([{"CPU": 2.0, "GPU": 1.0}], [{"CPU": 8.0}, {"CPU": 1.0, "GPU": 1.0}])
    assert reason == (
        "The run needs 2 CPU and 1 GPU on one node; "
        "the nodes have 8 CPU and 0 GPU or 1 CPU and 1 GPU"
    )


def test_importing_the_session_imports_no_ray(tmp_path: Path) -> None:
    script = "import json, sys, cluster.session; print(json.dumps('ray' in sys.modules))"
    assert python(script, tmp_path) is False
