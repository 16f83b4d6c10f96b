"""The examination on this machine, and each finding on conditions made for it."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections import namedtuple
from importlib import metadata
from pathlib import Path

import pytest

from cluster import doctor
from cluster.doctor import Finding, examine

Usage = namedtuple("Usage", "total used free")


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


def test_this_machine_is_examined_in_seconds() -> None:
    began = time.process_time()
    found = by_name(examine())
    assert time.process_time() - began < 10.0
    assert found["ray"] == Finding("ray", "ok", metadata.version("ray"))
    assert {"python", "CPUs", "GPUs", "runs folder", "cluster", "shared memory"} <= set(found)
    assert [f for f in found.values() if f.status == "problem"] == []
    assert all(f.advice for f in found.values() if f.status != "ok")
    assert not Path("runs").exists()


def test_a_python_without_releases_is_a_problem() -> None:
    assert doctor.python((3, 12)).status == "ok"
    finding = doctor.python((3, 14))
    assert finding.status == "problem"
    assert "3.11 or 3.12" in finding.advice


def test_a_missing_and_a_wrong_distribution_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    requires = ["ray[data]==1.0", "no-such-thing>=2", "numpy", 'other; extra == "dev"']
    monkeypatch.setattr(metadata, "requires", lambda _: requires)
    found = by_name(list(doctor.distributions()))
    assert found["ray"].status == "problem"
    assert metadata.version("ray") in found["ray"].found
    assert found["no-such-thing"] == Finding(
        "no-such-thing", "problem", "not installed", 'pip install "no-such-thing>=2"'
    )
    assert found["numpy"].status == "ok"
    assert "other" not in found


def test_a_package_of_the_same_name_in_front_of_ours_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "__init__.py").touch()
    root = Path(doctor.__file__).parents[1]
    script = "from cluster import doctor; print(doctor.room('envs')); print(doctor.room('cluster'))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (tmp_path, root)))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    theirs, ours = done.stdout.splitlines()
    assert "status='problem'" in theirs
    assert str(tmp_path / "envs" / "__init__.py") in theirs
    assert "PYTHONPATH" in theirs
    assert "status='ok'" in ours


def test_cpus_that_ray_overcounts_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray._private.utils.get_num_cpus", lambda **_: 64)
    monkeypatch.setattr(doctor, "usable_cpus", lambda: 3)
    finding = next(doctor.processors())
    assert finding.status == "warning"
    assert "3 usable" in finding.found
    assert "Ray sees 64" in finding.found
    assert "--num-cpus 3" in finding.advice


@pytest.mark.parametrize(
    ("driver", "ray", "torch", "status", "advice"),
    [
        (0, 0, 0, "ok", ""),
        (2, 2, 2, "ok", ""),
        (1, 1, 0, "warning", "CUDA build of torch"),
        (2, 1, 2, "warning", "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_gpus_are_held_against_each_other(
    driver: int, ray: int, torch: int, status: str, advice: str
) -> None:
    finding = doctor.accelerators(driver, ray, torch, "2.13.0")
    assert finding.status == status
    assert advice in finding.advice


def test_a_full_disk_and_a_small_shared_memory_are_warnings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(64e6, 0, 5e8))
    folders = list(doctor.disks(tmp_path / "runs" / "deeper"))
    assert [f.status for f in folders] == ["warning", "warning"]
    assert f"{tmp_path}: 0.5 GB free" in folders[0].found
    memory = doctor.shared_memory(tmp_path)
    assert memory.status == "warning"
    assert "0.06 GB" in memory.found
    assert "--shm-size" in memory.advice


def test_folders_of_killed_runs_are_named(tmp_path: Path) -> None:
    living = tmp_path / "corymb-a" / "ray" / f"session_2026-12-01_10-00-00_000000_{os.getpid()}"
    living.mkdir(parents=True)
    (tmp_path / "corymb-b").mkdir()  # just begun
    assert doctor.leftovers(tmp_path) == Finding("leftovers", "ok", "none")
    process = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"],
                             capture_output=True, text=True, check=True)  # fmt: skip
    session = f"session_2026-12-01_10-00-00_000000_{process.stdout.strip()}"
    (tmp_path / "corymb-c" / "ray" / session).mkdir(parents=True)
    finding = doctor.leftovers(tmp_path)
    assert finding.status == "warning"
    assert finding.advice == f"rm -r {tmp_path / 'corymb-c'}"


def test_an_address_that_does_not_answer_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    [finding] = doctor.cluster()
    assert finding.status == "problem"
    assert address in finding.found
    assert finding.advice.startswith("start one")


def test_a_cluster_that_answers_and_a_readable_token(ray_cluster: str) -> None:
    [finding] = doctor.cluster()
    assert finding == Finding("cluster", "ok", f"{ray_cluster} answers")
    token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
    token.chmod(0o644)
    try:
        assert [f.status for f in doctor.cluster()] == ["ok", "warning"]
    finally:
        token.chmod(0o600)
