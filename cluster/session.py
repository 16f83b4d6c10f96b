"""Starting Ray on this machine, or joining a cluster, and what a run may count on there.

An embedded Ray is private to the run: it has no dashboard, sends no usage statistics, keeps its
files in a folder of the system's temporary space that goes with it, and asks for a token, because
Ray listens on all network interfaces even when told to use loopback.
"""

import contextlib
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cluster.environment import usable_cpus
from cluster.errors import ClusterUnreachableError, ResourcesError

if TYPE_CHECKING:
    from cluster.config import ClusterSettings
    from cluster.plan import Plan

CONNECT_SECONDS = 10.0
"""How long a cluster may take to answer before it counts as unreachable."""

POLL_SECONDS = 2.0

RAY_DEFAULT_PORT = 6379

SOCKET = "corymb-12345678/ray/session_2026-12-31_23-59-59_123456_1234567/sockets/plasma_store"
"""Longest path of a socket below the temporary folder."""

SOCKET_BYTES = 107 if sys.platform == "linux" else 103
"""Length that the operating system allows for the path of a socket."""


class Session:
    """A connection to Ray for the length of a run; use as a context manager.

    Parameters
    ----------
    settings : address, or size of the embedded Ray.
    say : told what the session waits for.
    """

    def __init__(
        self, settings: "ClusterSettings", *, say: Callable[[str], None] = lambda _: None
    ) -> None:
        address = settings.address or os.environ.get("RAY_ADDRESS") or "local"
        self.address = None if address == "local" else address
        self.embedded = self.address is None
        self._settings = settings
        self._say = say
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Start or join; raises ClusterUnreachableError."""
        try:
            folder = Path(tempfile.mkdtemp(prefix="corymb-", dir=temporary_folder()))
            self._undo.callback(shutil.rmtree, folder, ignore_errors=True)
            self._folder = folder
            self._undo.enter_context(_environment(_quiet_environment(folder)))
            if self.embedded:
                self._undo.enter_context(_environment(_embedded_environment(folder)))
            self.ensure()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Disconnect; an embedded Ray ends, and its files and variables go."""
        self._close()

    def _close(self) -> None:
        import ray

        ray.shutdown()
        self._undo.close()
        _reread_authentication()

    def ensure(self) -> None:
        """Connect if there is no connection: at the start, and after something closed it.

        Flower's stock simulation engine ends by calling `ray.shutdown()`.
        """
        import ray

        if ray.is_initialized():
            return
        _reread_authentication()
        with _own_signal_handlers():
            if self.embedded:
                self._start()
            else:
                _join(str(self.address))

    def _start(self) -> None:
        import ray

        ray.init(
            address="local",
            num_cpus=self._settings.num_cpus or usable_cpus(),
            num_gpus=self._settings.num_gpus,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            job_config=_job_config(),
            _temp_dir=str(self._folder / "ray"),
        )

    def nodes(self) -> list[dict[str, float]]:
        """Total resources of each living node: CPU, GPU, memory and custom ones."""
        import ray

        return [dict(n["Resources"]) for n in ray.nodes() if n["Alive"] and n["Resources"]]

    def preflight(self, plan: "Plan") -> None:
        """Hold the plan against the cluster; wait for it to grow if the settings say so.

        Raises
        ------
        ResourcesError
            With what is needed, what there is, and the keys to change.
        """
        deadline = time.monotonic() + self._settings.wait_for_resources
        while True:
            lacking = unplaceable(plan.bundles, self.nodes())
            if lacking is None:
                return
            if time.monotonic() >= deadline:
                keys = " or ".join(plan.keys)
                waited = self._settings.wait_for_resources
                after = f" after waiting {waited:g} s" if waited else ""
                raise ResourcesError(f"{lacking}{after}; change {keys}, or use a larger cluster")
            self._say(f"waiting for the cluster to grow: {lacking}")
            time.sleep(min(POLL_SECONDS, max(0.0, deadline - time.monotonic())))


def unplaceable(
    bundles: Sequence[Mapping[str, float]], nodes: Sequence[Mapping[str, float]]
) -> str | None:
    """Say why the bundles cannot all be placed, each whole on one node; None if they can.

    The most demanding go first, each where it leaves least of what few nodes have. That finds a
    placement in all but contrived cases, and never claims one that does not exist.
    """
    free = [dict(node) for node in nodes]
    for bundle in sorted(bundles, key=_demand, reverse=True):
        room = [node for node in free if _fits(bundle, node)]
        if not room:
            return _lack(bundle, bundles, nodes)
        tightest = min(room, key=lambda node: _demand(_rest(node, bundle)))
        tightest.update(_rest(tightest, bundle))
    return None


def _demand(resources: Mapping[str, float]) -> tuple[float, float]:
    """Order by what few nodes have (GPUs, custom resources), then by CPUs."""
    common = ("CPU", "memory", "object_store_memory")
    rare = sum(
        amount
        for name, amount in resources.items()
        if name not in common and not name.startswith("node:")
    )
    return rare, resources.get("CPU", 0.0)


def _fits(bundle: Mapping[str, float], node: Mapping[str, float]) -> bool:
    # The margin covers sums of fractions; Ray itself counts in ten-thousandths.
    return all(node.get(name, 0.0) >= amount - 1e-6 for name, amount in bundle.items())


def _rest(node: Mapping[str, float], bundle: Mapping[str, float]) -> dict[str, float]:
    return {name: amount - bundle.get(name, 0.0) for name, amount in node.items()}


def _lack(
    bundle: Mapping[str, float],
    bundles: Sequence[Mapping[str, float]],
    nodes: Sequence[Mapping[str, float]],
) -> str:
    """Name what no node could hold even if empty, else the sum of all against the cluster's."""
    for name, amount in bundle.items():
        largest = max((node.get(name, 0.0) for node in nodes), default=0.0)
        if largest < amount:
            return f"The run needs {amount:g} {name} on one node; the largest node has {largest:g}"
    if not any(_fits(bundle, node) for node in nodes):
        different = (_amounts({name: node.get(name, 0.0) for name in bundle}) for node in nodes)
        have = ", or ".join(dict.fromkeys(different))
        return f"The run needs {_amounts(bundle)} on one node; the nodes have {have}"
    count = f"{len(nodes)} node" + "s" * (len(nodes) > 1)
    parts = []
    for name in sorted({key for b in bundles for key in b}):
        need = sum(b.get(name, 0.0) for b in bundles)
        have_all = sum(node.get(name, 0.0) for node in nodes)
        parts.append(f"{need:g} {name} (there are {have_all:g} on {count})")
    return "The run needs at the same time " + " and ".join(parts)


def _amounts(resources: Mapping[str, float]) -> str:
    return " and ".join(f"{amount:g} {name}" for name, amount in resources.items())


def temporary_folder() -> Path:
    """The system's temporary folder, or /tmp where that is too long for the path of a socket."""
    folder = Path(tempfile.gettempdir())
    return folder if len(os.fsencode(folder / SOCKET)) <= SOCKET_BYTES else Path("/tmp")


def _quiet_environment(folder: Path) -> dict[str, str | None]:
    """Variables that keep Ray and Flower from messages home and from files in the home folder."""
    return {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray's coming default; silences its warning
        "FLWR_HOME": str(folder / "flwr"),
        "FLWR_TELEMETRY_ENABLED": "0",
    }


def _embedded_environment(folder: Path) -> dict[str, str | None]:
    """Variables for the embedded Ray's processes (None: unset); writes the token file."""
    token = folder / "token"
    descriptor = os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": None,  # Ray would take it instead of the file
        "RAY_AUTH_TOKEN_PATH": str(token),
    }


def _job_config() -> Any:
    """Have workers import our packages from where this process has them.

    Those of a joined cluster would otherwise run the corymb that is installed beside their Ray,
    which need not be this one. On a machine without the folder that is what they do.
    """
    from ray.job_config import JobConfig

    root = Path(__file__).resolve().parents[1]
    installed = {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")}
    return JobConfig(_py_driver_sys_path=[] if root in installed else [str(root)])


@contextlib.contextmanager
def _environment(values: Mapping[str, str | None]) -> Iterator[None]:
    previous = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(previous)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _reread_authentication() -> None:
    """Make Ray look at the RAY_AUTH_ variables again.

    It reads the mode when it is imported and the token when it first needs one, and keeps both for
    the life of the process. Without this, a process that had imported Ray before, or had a session
    before, could not talk to the Ray that it starts.
    """
    from ray import _raylet

    internals: Any = _raylet  # its type stub leaves both names out
    internals.Config.initialize("")
    internals.AuthenticationTokenLoader.instance().reset_cache()


@contextlib.contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """Keep the process's own answers to SIGINT and SIGTERM: Ray replaces them as it connects.

    A run answers with a checkpoint; Ray's handlers would abort it. The system's default answers are
    left to Ray, which at least shuts itself down.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                if callable(handler):
                    signal.signal(number, handler)


def _join(address: str) -> None:
    import ray

    reachable(address)
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            job_config=_job_config(),
        )
    except Exception as error:
        text = str(error).strip().splitlines()
        reason = text[-1] if text else type(error).__name__
        raise ClusterUnreachableError(
            f"The cluster at {address} does not let this run join: {reason}"
        ) from error


def reachable(address: str, seconds: float = CONNECT_SECONDS) -> None:
    """Raise ClusterUnreachableError unless a cluster answers at the address, and to this process.

    Ray itself would go on trying for minutes. "auto" is a cluster that runs on this machine, or the
    last that `ray start` began here, which need not live any more.
    """
    if address == "auto":
        reachable(_on_this_machine(), seconds)
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    target = (host or port, int(port) if host and port.isdigit() else RAY_DEFAULT_PORT)
    try:
        socket.create_connection(target, timeout=seconds).close()
        refusal = _greet(f"{target[0]}:{target[1]}", seconds, client=address.startswith("ray://"))
    except OSError as error:
        raise ClusterUnreachableError(
            f"No cluster answers at {address} ({error}); start one, or drop --address "
            "and RAY_ADDRESS to run on this machine"
        ) from None
    if refusal:
        raise ClusterUnreachableError(
            f"The cluster at {address} does not let this run join: {refusal}; set "
            "RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to a file with the cluster's token"
        )


def _on_this_machine() -> str:
    from ray._private.services import canonicalize_bootstrap_address

    try:
        found = canonicalize_bootstrap_address("auto")
    except ConnectionError:
        found = None
    if found is None:
        raise ClusterUnreachableError(
            "No Ray cluster was started on this machine; start one with `ray start --head`, or "
            "drop --address and RAY_ADDRESS to run without"
        )
    return str(found)


def _greet(target: str, seconds: float, client: bool) -> str | None:
    """Ask a cluster for its id; return why it refuses to tell, None if it tells.

    `client` says that the address is one of Ray Client, which knows no ids: an answer is enough.
    Raises ConnectionError if what listens there is not Ray.
    """
    import grpc
    from ray._private.grpc_utils import init_grpc_channel
    from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc
    from ray.exceptions import AuthenticationError

    channel = init_grpc_channel(target, [("grpc.enable_http_proxy", 0)])
    stub = gcs_service_pb2_grpc.NodeInfoGcsServiceStub(channel)
    request = gcs_service_pb2.GetClusterIdRequest()
    try:
        stub.GetClusterId(request, timeout=seconds, wait_for_ready=True)
    except AuthenticationError:
        return "there is no token"
    except grpc.RpcError as error:
        code = error.code()
        if code == grpc.StatusCode.UNAUTHENTICATED:
            return "the token is missing or wrong"
        if not (client and code == grpc.StatusCode.UNIMPLEMENTED):
            raise ConnectionError(f"what listens there is not Ray, {code.name}") from None
    finally:
        channel.close()
    return None


def ray_view() -> dict[str, Any]:
    """What Ray itself detects on this machine, without starting it."""
    from ray._private.accelerators import get_all_accelerator_managers
    from ray._private.utils import get_num_cpus

    found = {m.get_resource_name(): m.get_current_node_num_accelerators()
             for m in get_all_accelerator_managers()}  # fmt: skip
    return {"cpus": get_num_cpus(), "accelerators": {k: v for k, v in found.items() if v}}
