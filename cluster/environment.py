"""What a run ran on: enough to believe a figure, or to look for why it differs elsewhere."""

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    "corymb", "ray", "flwr", "torch", "gymnasium", "numba", "numpy", "scipy", "pyarrow", "pydantic",
    "safetensors", "matplotlib",
)  # fmt: skip


CODE = (":(top)*.py", ":(top)*.toml", ":(top)*.txt", ":(top)*.j2")
"""What makes a checkout differ from its commit; results and pages do not."""


def capture() -> dict[str, Any]:
    """Return versions, machine and commit; takes a fraction of a second, imports nothing heavy."""
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "packages": {name: version(name) for name in PACKAGES},
        "git": commit(Path(__file__).resolve().parent),
        "cpus": usable_cpus(),
        "cpu_model": _cpu_model(),
        "memory_gb": _memory_gb(),
        "gpus": gpus(),
    }


def version(name: str) -> str | None:
    """Installed version of a distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def usable_cpus() -> int:
    """CPUs this process may use: its affinity, and the quota of its control group."""
    count = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return count
    return count if quota == "max" else max(1, min(count, int(quota) // int(period)))


def gpus() -> list[str]:
    """Names of NVIDIA GPUs as the driver reports them, without importing torch."""
    return _run("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader").splitlines()


def commit(folder: Path) -> dict[str, Any] | None:
    """Commit of the checkout that the code runs from, and whether it was changed; None if none."""
    found = _run("git", "-C", str(folder), "rev-parse", "HEAD")
    if not found:
        return None
    changed = _run("git", "-C", str(folder), "status", "--porcelain", "--", *CODE)
    return {"commit": found, "dirty": bool(changed)}


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), "")


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
    except (ValueError, OSError):
        return None
