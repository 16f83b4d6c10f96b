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
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cluster.environment import usable_cpus
from cluster.errors import ClusterUnreachableError, ResourcesError, UsageError
from cluster.gcs import forget_authentication, knock

if TYPE_CHECKING:
    from cluster.config import ClusterSettings
    from cluster.plan import Plan

POLL_SECONDS = 2.0

LONGEST_FOLDER = 30
"""Characters of the folder that still leave room for Ray's socket names (107 bytes in all)."""


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
        self.embedded = address == "local"
        self._address = address
        self._settings = settings
        self._say = say
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Start or join; raises ClusterUnreachableError, and UsageError inside another session."""
        import ray

        if ray.is_initialized():
            raise UsageError("Ray is already running in this process; call ray.shutdown() first")
        with contextlib.ExitStack() as undo:
            undo.callback(forget_authentication)
            self._folder = _folder()
            undo.callback(shutil.rmtree, self._folder, ignore_errors=True)
            undo.enter_context(_environment(_quiet_environment(self._folder)))
            if self.embedded:
                undo.enter_context(_environment(_embedded_environment(self._folder)))
            undo.callback(ray.shutdown)
            self.ensure()
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Disconnect; an embedded Ray ends, and its files and variables go."""
        self._undo.close()

    def ensure(self) -> None:
        """Connect if there is no connection: at the start, and after something closed it.

        Flower's stock simulation engine ends by calling `ray.shutdown()`.
        """
        import ray

        if ray.is_initialized():
            return
        if not self.embedded:
            _join(self._address)
            return
        forget_authentication()
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

    The most demanding go first, each where it leaves least unused. That finds a placement in all
    but contrived cases, and never claims one that does not exist.
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
    rare = sum(amount for name, amount in resources.items()
               if name not in common and not name.startswith("node:"))  # fmt: skip
    return rare, resources.get("CPU", 0.0)


def _fits(bundle: Mapping[str, float], node: Mapping[str, float]) -> bool:
    # A millionth covers sums of fractions; Ray itself counts in ten-thousandths.
    return all(node.get(name, 0.0) >= amount - 1e-6 for name, amount in bundle.items())


def _rest(node: Mapping[str, float], bundle: Mapping[str, float]) -> dict[str, float]:
    return {name: amount - bundle.get(name, 0.0) for name, amount in node.items()}


def _lack(
    bundle: Mapping[str, float],
    bundles: Sequence[Mapping[str, float]],
    nodes: Sequence[Mapping[str, float]],
) -> str:
    """One bundle that no node could hold even if empty, else the sum of all."""
    if not any(_fits(bundle, node) for node in nodes):
        wanted = _amounts(bundle)
        names = list(bundle)
        largest = " or ".join(
            dict.fromkeys(_amounts({n: node.get(n, 0.0) for n in names}) for node in nodes)
        )
        return f"The run needs {wanted} on one node; the nodes have {largest or 'nothing'}"
    names = sorted({name for b in bundles for name in b})
    need = _amounts({n: sum(b.get(n, 0.0) for b in bundles) for n in names})
    have = _amounts({n: sum(node.get(n, 0.0) for node in nodes) for n in names})
    count = f"{len(nodes)} node" + "s" * (len(nodes) != 1)
    parts = f", in {len(bundles)} parts that each stay on one node" if len(nodes) > 1 else ""
    return f"The run needs {need} at the same time{parts}; there are {have} on {count}"


def _amounts(resources: Mapping[str, float]) -> str:
    return " and ".join(f"{amount:g} {name}" for name, amount in resources.items())


def _folder() -> Path:
    """Make a private folder (mode 0700) whose path is short enough for sockets in it."""
    base = tempfile.gettempdir()
    if len(os.fsencode(base)) > LONGEST_FOLDER - len("/corymb-12345678"):
        base = "/tmp"
    return Path(tempfile.mkdtemp(prefix="corymb-", dir=base))


def _job_config() -> Any:
    """Have workers import our packages from where this process has them.

    Otherwise those of a joined cluster would run the corymb that is installed beside their Ray,
    which need not be this checkout. On a machine without the folder, that is what they do.
    """
    from ray.job_config import JobConfig

    root = Path(__file__).resolve().parents[1]
    installed = root in (
        Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")
    )
    return JobConfig(_py_driver_sys_path=[] if installed else [str(root)])


def _quiet_environment(folder: Path) -> dict[str, str | None]:
    return {
        "FLWR_HOME": str(folder / "flwr"),  # Flower would write under the home folder
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray's coming default; silences its warning
        # Ray sets it; named here with its own value to be restored.
        "PYTHONBREAKPOINT": os.environ.get("PYTHONBREAKPOINT"),
    }


def _embedded_environment(folder: Path) -> dict[str, str | None]:
    """Variables for the embedded Ray's processes (None: unset); writes the token file."""
    token = folder / "token"
    descriptor = os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": None,  # would go before the file
        "RAY_AUTH_TOKEN_PATH": str(token),
    }


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


def _join(address: str) -> None:
    import ray

    target = knock(address)
    try:
        ray.init(
            address=target,
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
