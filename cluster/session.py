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
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cluster.environment import usable_cpus
from cluster.errors import ClusterUnreachableError, ResourcesError
from cluster.joining import reachable
from cluster.placement import unplaceable

if TYPE_CHECKING:
    from cluster.config import ClusterSettings
    from cluster.plan import Plan

POLL_SECONDS = 2.0

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
            self._undo.enter_context(_quiet_terminal())
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
            logging_level=logging.WARNING,
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


@contextlib.contextmanager
def _quiet_terminal() -> Iterator[None]:
    """Keep Ray's warnings out of the terminal but not out of the run's log.

    `ray.init` can only set the level of the logger, which holds for both, and for the life of the
    process.
    """
    import ray  # noqa: F401  # Ray's handler is there once it is imported

    logger = logging.getLogger("ray")
    terminal = [h for h in logger.handlers if not isinstance(h, logging.FileHandler)]
    spoken, levels = logger.level, [handler.level for handler in terminal]
    for handler in terminal:
        handler.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(spoken)
        for handler, level in zip(terminal, levels, strict=True):
            handler.setLevel(level)


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
            logging_level=logging.WARNING,
            job_config=_job_config(),
        )
    except Exception as error:
        text = str(error).strip().splitlines()
        reason = text[-1] if text else type(error).__name__
        raise ClusterUnreachableError(
            f"The cluster at {address} does not let this run join: {reason}"
        ) from error
