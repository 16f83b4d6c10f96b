"""The run directory: all that a run makes is in it, and what was written survives a kill.

runs/2026-12-01T0428-fedgmm-3f2a/ holds run.json (id, status, times, lineage), config.yaml,
origins.json, environment.json, metrics.jsonl, checkpoints/, plots/, result.json, report.html and
log.txt. Only the process that holds `.lock` writes; the lock ends with the process.
"""

import contextlib
import fcntl
import io
import json
import logging
import os
import resource
import secrets
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from cluster import checkpoints, environment
from cluster.errors import CorymbError, InterruptedRunError, UsageError
from cluster.evidence import Result
from cluster.files import finite, write_json, write_text

if TYPE_CHECKING:
    import numpy as np

    from cluster.session import Session

LOGGERS = ("corymb", "ray", "ray.rllib", "flwr")
"""Whose words go to log.txt; RLlib, once imported, hands none of its own on to Ray's logger."""

LIVE_SECONDS = 1.0
QUIET_SECONDS = 5.0


class Run:
    """One run and its directory. Use as a context manager while it is being written.

    Attributes
    ----------
    path : the directory.
    id : its name.
    session : the Ray session it runs in, set by `cluster.execute`; None outside one.
    """

    def __init__(self, path: Path, record: dict[str, Any], lock: IO[str]) -> None:
        self.path = path
        self.id = str(record["id"])
        self.session: Session | None = None
        self._record = record
        self._lock = lock
        self._metrics: IO[str] | None = None
        self._stop: str | None = None
        self._said = 0.0
        self._cpu = _cpu_seconds()
        self._previous: dict[int, Any] = {}
        self._handler: logging.Handler | None = None

    @classmethod
    def open(
        cls,
        *,
        recipe: str,
        config_yaml: str,
        origins: Mapping[str, str],
        output: Path,
        lineage: Mapping[str, str] | None = None,
    ) -> "Run":
        """Make a new run directory under `output` and take its lock."""
        now = datetime.now(UTC)
        try:
            output.mkdir(parents=True, exist_ok=True)
            path = _new_folder(output, f"{now:%Y-%m-%dT%H%M}-{recipe}")
        except OSError as error:
            raise UsageError(
                f"No run directory can be made in {output} ({error.strerror}); "
                "choose another folder with --set output=DIR"
            ) from None
        record = {
            "id": path.name, "recipe": recipe, "status": "running", "created": now.isoformat(),
            "started": now.isoformat(), "ended": None, "seconds": 0.0, "cpu_seconds": 0.0,
            "lineage": dict(lineage or {}), "pid": os.getpid(), "host": os.uname().nodename,
            "error": None,
        }  # fmt: skip
        run = cls(path, record, _take_lock(path))
        write_text(path / "config.yaml", config_yaml)
        write_json(path / "origins.json", dict(origins))
        write_json(path / "environment.json", environment.capture())
        write_json(path / "run.json", record)
        return run

    @classmethod
    def reopen(cls, path: Path) -> "Run":
        """Take up a run that stopped; raises UsageError if there is nothing to take up."""
        read_record(path)
        lock = _take_lock(path)
        record = read_record(path)  # again: only under the lock does it stay as it is
        if record["status"] == "finished":
            lock.close()
            raise UsageError(f"{path.name} is finished; `corymb rerun` repeats it")
        now = datetime.now(UTC).isoformat()
        record |= {"status": "running", "started": now, "ended": None, "error": None}
        record |= {"pid": os.getpid(), "host": os.uname().nodename}
        run = cls(path, record, lock)
        write_json(path / "run.json", record)
        return run

    def __enter__(self) -> Self:
        """Log to log.txt and answer SIGINT and SIGTERM with a checkpoint."""
        self._handler = logging.FileHandler(self.path / "log.txt")
        self._handler.setFormatter(
            logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
        )
        self._handler.addFilter(_once())
        for name in LOGGERS:
            logging.getLogger(name).addHandler(self._handler)
        logging.getLogger("corymb").setLevel(logging.INFO)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release lock, log and signal handlers; a run left without a verdict has failed."""
        if self._record["status"] == "running":
            self.fail(error or CorymbError("The run ended without a result"))
        for number, previous in self._previous.items():
            signal.signal(number, previous)
        if self._handler is not None:
            for name in LOGGERS:
                logging.getLogger(name).removeHandler(self._handler)
            self._handler.close()
        if self._metrics is not None:
            self._metrics.close()
        self._lock.close()

    def log(self, step: int, **metrics: float) -> None:
        """Append one line to metrics.jsonl in a single write, and flush it.

        Values that are not finite are written as null: JSON has no word for them. A step logged
        again after a resume replaces the earlier line when the file is read.
        """
        if self._metrics is None:
            self._metrics = _append(self.path / "metrics.jsonl")
        line = {"step": step, "time": round(time.time(), 3), **finite(metrics)}
        self._metrics.write(json.dumps(line) + "\n")
        self._metrics.flush()

    def metrics(self) -> list[dict[str, Any]]:
        """The logged lines, read back; see `read_metrics`."""
        return read_metrics(self.path)

    def save(
        self,
        step: int,
        arrays: Mapping[str, "np.ndarray"],
        state: Mapping[str, Any],
        *,
        name: str = "last",
    ) -> Path:
        """Write a checkpoint; the newest two of each name are kept."""
        return checkpoints.save(self.path / "checkpoints", name, step, arrays, state)

    def load(
        self, name: str = "last"
    ) -> tuple[int, dict[str, "np.ndarray"], dict[str, Any]] | None:
        """Return step, arrays and state of the newest whole checkpoint of that name, or None."""
        damaged: list[str] = []
        found = checkpoints.load(self.path / "checkpoints", name, damaged)
        for file in damaged:
            self.warn(f"checkpoint {file} is damaged or missing and is passed over")
        return found

    def artifact(self, relative: str) -> Path:
        """Path for a file that belongs to the run; its folder is made.

        Raises ValueError if it would lie outside the run directory.
        """
        path = (self.path / relative).resolve()
        if not path.is_relative_to(self.path.resolve()):
            raise ValueError(f"{relative} lies outside the run directory")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def say(self, text: str) -> None:
        """Show progress on stderr: one live line a second on a terminal, else one in five."""
        logging.getLogger("corymb").info(text)
        live = sys.stderr.isatty()
        now = time.monotonic()
        if now - self._said < (LIVE_SECONDS if live else QUIET_SECONDS):
            return
        self._said = now
        if live:
            sys.stderr.write(f"\r\x1b[2K{text[:110]}")
            sys.stderr.flush()
        else:
            print(text, file=sys.stderr)

    def warn(self, text: str) -> None:
        """Say something that must not be missed, and keep it in the log."""
        logging.getLogger("corymb").warning(text)
        start = "\r\x1b[2K" if sys.stderr.isatty() else ""
        print(f"{start}warning: {text}", file=sys.stderr)

    def stop_requested(self) -> bool:
        """Whether SIGINT or SIGTERM came."""
        return self._stop is not None

    def check_stop(self) -> None:
        """Raise InterruptedRunError if the run was asked to stop."""
        if self._stop is not None:
            raise InterruptedRunError(
                f"Stopped by {self._stop}; `corymb resume {self.id}` goes on from there"
            )

    def close(self, result: Result) -> None:
        """Write result.json and mark the run finished."""
        self._settle("finished", None)
        result.seconds = self._record["seconds"]
        result.cpu_seconds = self._record["cpu_seconds"]
        write_json(self.path / "result.json", result.to_json())
        write_json(self.path / "run.json", self._record)

    def fail(self, error: BaseException) -> None:
        """Mark the run failed or interrupted and keep the error's text and traceback."""
        stopped = isinstance(error, InterruptedRunError | KeyboardInterrupt)
        text = str(error) or type(error).__name__
        self._settle("interrupted" if stopped else "failed", text)
        write_json(self.path / "run.json", self._record)
        detail = "".join(traceback.format_exception(error))
        logging.getLogger("corymb").log(logging.INFO if stopped else logging.ERROR, detail)

    def _settle(self, status: str, error: str | None) -> None:
        now = datetime.now(UTC)
        started = datetime.fromisoformat(self._record["started"])
        self._record["seconds"] = round(
            self._record["seconds"] + (now - started).total_seconds(), 3
        )
        self._record["cpu_seconds"] = round(
            self._record["cpu_seconds"] + _cpu_seconds() - self._cpu, 3
        )
        self._record |= {"status": status, "ended": now.isoformat(), "error": error}
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[2K")

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self._stop is not None:
            raise KeyboardInterrupt
        self._stop = signal.Signals(number).name
        with contextlib.suppress(RuntimeError):  # it came while something else was being printed
            self.warn(f"{self._stop}: stopping at the next checkpoint; once more to stop at once")


def read_record(path: Path) -> dict[str, Any]:
    """Read run.json of a run directory; raises UsageError if it is none."""
    try:
        record: dict[str, Any] = json.loads((path / "run.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        raise UsageError(f"{path} is not a run directory: it has no readable run.json") from None
    return record


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Lines of metrics.jsonl; of lines with the same step and metrics the last one counts.

    A line cut short by a kill is left out.
    """
    file = path / "metrics.jsonl"
    if not file.is_file():
        return []
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for text in file.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        found[(line["step"], *sorted(line.keys() - {"step", "time"}))] = line
    return list(found.values())


def is_locked(path: Path) -> bool:
    """Whether a living process is writing this run."""
    try:
        _take_lock(path).close()
    except UsageError:
        return True
    return False


def _new_folder(parent: Path, start: str) -> Path:
    while True:
        path = parent / f"{start}-{secrets.token_hex(2)}"
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            return path


def _once() -> Callable[[logging.LogRecord], bool]:
    """A filter that lets a record through once, though a logger and its parent both log here."""
    last: logging.LogRecord | None = None

    def fresh(record: logging.LogRecord) -> bool:
        nonlocal last
        known, last = record is last, record
        return not known

    return fresh


def _append(path: Path) -> IO[str]:
    """Open a file of lines to append to; a last line that a kill cut short is ended first."""
    file = path.open("a+b")
    if file.tell() > 0:
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.write(b"\n")
    return io.TextIOWrapper(file, encoding="utf-8")


def _take_lock(path: Path) -> IO[str]:
    lock = (path / ".lock").open("a", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise UsageError(f"{path.name} is being written by another process") from None
    return lock


def _cpu_seconds() -> float:
    """CPU time of this process and of the children it has waited for."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
