"""`corymb doctor`: what this machine and installation look like, and what to do about it.

Starts nothing: what Ray "would take" is what its own detection says. Needs a few seconds, most of
them to import torch, which alone can say what torch sees.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import Requirement

from cluster import environment, joining, session
from cluster.catalogue import RUNS
from cluster.errors import ClusterUnreachableError

Status = Literal["ok", "warning", "problem"]

ROOMS = ("cluster", "envs", "federated", "trainers")

PYTHONS = ((3, 11), (3, 12))

ANSWER_SECONDS = 2.0
"""How long the cluster at RAY_ADDRESS may take to answer here."""

GIB = 2**30
LITTLE_DISK = 2 * GIB
NO_DISK = GIB // 5
LITTLE_SHARED_MEMORY = GIB // 2

RAY_DISK_LIMIT = 0.95
"""Ray stores no more objects on a file system that is fuller than this."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes
    ----------
    name : what was looked at.
    status : "ok"; "warning", runs work but not as well as they could; "problem", runs fail.
    found : what is there.
    advice : what to do; empty where there is nothing to do.
    """

    name: str
    status: Status
    found: str
    advice: str = ""


def examine() -> list[Finding]:
    """Look at versions, packages, CPUs, GPUs, disk, shared memory and the cluster's address."""
    view, failed = look()
    findings = [python(), *packages(), *extras(), rooms(), *failed, cpus(view), gpus(view)]
    findings += [disk("runs folder", RUNS), disk("temporary folder", session.temporary_folder())]
    findings += [*shared_memory(), address(), *token()]
    return findings


def python() -> Finding:
    """Whether this Python is one that corymb is made for."""
    found = f"{sys.version.split()[0]} at {sys.executable}"
    if sys.version_info[:2] in PYTHONS:
        return Finding("python", "ok", found)
    return Finding("python", "problem", found, "install corymb under Python 3.11 or 3.12")


def packages() -> Iterator[Finding]:
    """Whether each package that corymb requires is there in a release that it works with."""
    try:
        texts = metadata.requires("corymb") or []
    except metadata.PackageNotFoundError:
        yield Finding("corymb", "warning", "not installed", "pip install -e . in its checkout")
        return
    yield Finding("corymb", "ok", f"{metadata.version('corymb')} at {_home()}")
    suitable = []
    for requirement in (r for r in map(Requirement, texts) if _applies(r, "")):
        have = environment.version(requirement.name)
        if have is not None and requirement.specifier.contains(have, prereleases=True):
            suitable.append(f"{requirement.name} {have}")
        else:
            advice = f"pip install '{requirement.name}{requirement.specifier}'"
            yield Finding(requirement.name, "problem", have or "not installed", advice)
    yield Finding("packages", "ok", ", ".join(suitable))


def extras() -> Iterator[Finding]:
    """Which optional parts are installed; those for developers do not count."""
    try:
        offered = metadata.metadata("corymb").get_all("Provides-Extra") or []
        requirements = [Requirement(text) for text in metadata.requires("corymb") or []]
    except metadata.PackageNotFoundError:
        return
    for extra in offered:
        if extra == "dev":
            continue
        own = [r.name for r in requirements if _applies(r, extra) and not _applies(r, "")]
        absent = [name for name in own if environment.version(name) is None]
        if absent:
            found, advice = f"without {', '.join(absent)}", f"pip install 'corymb[{extra}]'"
            yield Finding(f"extra {extra}", "warning", found, advice)
        else:
            yield Finding(f"extra {extra}", "ok", ", ".join(own))


def rooms() -> Finding:
    """Whether our packages' names lead to our code; other distributions bear the same names."""
    home = _home()
    strays = []
    for name in ROOMS:
        spec = find_spec(name)
        places = list(spec.submodule_search_locations or []) if spec else []
        if [Path(p).resolve() for p in places] != [home / name]:
            strays.append(f"{name} at {places[0] if places else 'no place'}")
    owners = metadata.packages_distributions()
    others = sorted({o for name in ROOMS for o in owners.get(name, ())} - {"corymb"})
    advice = f"pip uninstall {' '.join(others)}, or use a virtual environment of its own"
    if strays:
        away = advice if others else "start from another folder, and look at PYTHONPATH"
        return Finding("package names", "problem", f"not corymb's: {', '.join(strays)}", away)
    if others:
        found = f"{', '.join(others)} installs packages of the same name"
        return Finding("package names", "warning", found, advice)
    return Finding("package names", "ok", f"{', '.join(ROOMS)} are corymb's")


@dataclass(frozen=True)
class View:
    """The machine's CPUs and GPUs as the operating system, Ray and torch have them.

    What could not be imported to be asked has None.
    """

    usable_cpus: int
    gpus: tuple[str, ...]
    ray_cpus: int | None = None
    ray_gpus: int | None = None
    torch_threads: int | None = None
    torch_gpus: int | None = None
    torch_cuda: str | None = None


def look() -> tuple[View, list[Finding]]:
    """Ask the operating system, Ray and torch; a finding for each that cannot be imported."""
    view = View(environment.usable_cpus(), tuple(environment.gpus()))
    findings = []
    try:
        ray = _ray_view()
        gpu_count = int(ray["accelerators"].get("GPU", 0))
        view = replace(view, ray_cpus=int(ray["cpus"]), ray_gpus=gpu_count)
    except (ImportError, OSError) as error:
        findings.append(Finding("import ray", "problem", str(error), _reinstall("ray")))
    try:
        import torch

        view = replace(
            view,
            torch_threads=torch.get_num_threads(),
            torch_gpus=torch.cuda.device_count(),
            torch_cuda=torch.version.cuda,
        )
    except (ImportError, OSError) as error:
        findings.append(Finding("import torch", "problem", str(error), _reinstall("torch")))
    return view, findings


def _ray_view() -> dict[str, Any]:
    """What Ray itself detects on this machine, without starting it."""
    from ray._private.accelerators import get_all_accelerator_managers
    from ray._private.utils import get_num_cpus

    found = {m.get_resource_name(): m.get_current_node_num_accelerators()
             for m in get_all_accelerator_managers()}  # fmt: skip
    return {"cpus": get_num_cpus(), "accelerators": {k: v for k, v in found.items() if v}}


def cpus(view: View) -> Finding:
    """CPUs that this process may use, against those that Ray and torch would take."""
    usable, ray, threads = view.usable_cpus, view.ray_cpus, view.torch_threads
    found = f"{usable} usable of {os.cpu_count()}; Ray sees {ray}, torch takes {threads} threads"
    advice = []
    if ray is not None and ray != usable:
        advice.append(f"give `ray start` --num-cpus {usable}; an embedded Ray gets {usable}")
    if threads is not None and threads > usable:
        advice.append(f"set OMP_NUM_THREADS={usable}")
    return Finding("cpus", "warning" if advice else "ok", found, "; ".join(advice))


def gpus(view: View) -> Finding:
    """GPUs that the driver reports, against those that Ray and torch see."""
    seen = {"Ray": view.ray_gpus, "torch": view.torch_gpus}
    counts = {name: count for name, count in seen.items() if count is not None}
    if set(counts.values()) <= {len(view.gpus)}:
        return Finding("gpus", "ok", "; ".join(view.gpus) or "none")
    found = f"the driver reports {len(view.gpus)}, "
    found += ", ".join(f"{name} sees {count}" for name, count in counts.items())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and len(set(counts.values())) == 1:
        return Finding("gpus", "ok", f"{found} (CUDA_VISIBLE_DEVICES={visible})")
    if view.torch_gpus == 0 and view.torch_cuda is None:
        advice = "this torch is built for CPUs only; install a CUDA build to use the GPUs"
    else:
        advice = f"torch is built for CUDA {view.torch_cuda}; `nvidia-smi` says what the driver has"
    return Finding("gpus", "warning", found, advice)


def disk(name: str, folder: Path) -> Finding:
    """Whether a folder can be written to and has room."""
    there = next(p for p in [folder.absolute(), *folder.absolute().parents] if p.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        return Finding(name, "problem", f"{there} cannot be written to", _elsewhere(name))
    usage = shutil.disk_usage(there)
    found = f"{folder.absolute()}: {usage.free / GIB:.1f} GiB free of {usage.total / GIB:.1f}"
    full = usage.used / usage.total > RAY_DISK_LIMIT
    if usage.free < NO_DISK:
        return Finding(name, "problem", found, f"make room, or {_elsewhere(name)}")
    if usage.free < LITTLE_DISK or (full and "temporary" in name):
        return Finding(name, "warning", found, f"make room, or {_elsewhere(name)}")
    return Finding(name, "ok", found)


def shared_memory(folder: Path = Path("/dev/shm")) -> Iterator[Finding]:
    """Room for Ray's object store; Linux only, elsewhere Ray uses the temporary folder."""
    if not folder.is_dir():
        return
    free = shutil.disk_usage(folder).free
    found = f"{folder}: {free / GIB:.2f} GiB free"
    if free >= LITTLE_SHARED_MEMORY:
        yield Finding("shared memory", "ok", found)
    else:
        advice = "Ray will use the slower temporary folder; in a container, pass --shm-size=2g"
        yield Finding("shared memory", "warning", found, advice)


def address() -> Finding:
    """Whether the cluster at RAY_ADDRESS answers."""
    where = os.environ.get("RAY_ADDRESS")
    if not where:
        return Finding("RAY_ADDRESS", "ok", "not set: runs start an embedded Ray")
    if where in ("auto", "local"):
        return Finding("RAY_ADDRESS", "ok", f"{where}: looked up when a run starts")
    try:
        joining.reachable(where, ANSWER_SECONDS)
    except ClusterUnreachableError as error:
        return Finding("RAY_ADDRESS", "problem", f"{where} does not answer", str(error))
    return Finding("RAY_ADDRESS", "ok", f"{where} answers")


def token() -> Iterator[Finding]:
    """Whether the token that RAY_AUTH_MODE=token asks for is there, and private."""
    if os.environ.get("RAY_AUTH_MODE", "").lower() != "token" or "RAY_AUTH_TOKEN" in os.environ:
        return
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    if not path.is_file():
        advice = "copy the cluster's token there, or name its place in RAY_AUTH_TOKEN_PATH"
        yield Finding("ray token", "problem", f"no file {path}", advice)
    elif path.stat().st_mode & 0o077:
        yield Finding("ray token", "warning", f"others can read {path}", f"chmod 600 {path}")
    else:
        yield Finding("ray token", "ok", str(path))


def _home() -> Path:
    """Folder that holds our packages."""
    return Path(__file__).resolve().parents[1]


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _reinstall(name: str) -> str:
    return f"pip install --force-reinstall {name}=={environment.version(name)}"


def _elsewhere(name: str) -> str:
    return "set TMPDIR to another folder" if "temporary" in name else "set `output` to another one"
