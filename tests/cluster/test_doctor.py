"""The doctor finds what is wrong, and only that; each check is given a machine that has it."""

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest

from cluster import doctor
from cluster.doctor import Finding, View


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_command_prints_json_and_exits_by_status(tmp_path: Path) -> None:
    root = str(Path(doctor.__file__).resolve().parents[1])
    environ = os.environ | {"PYTHONPATH": root, "RAY_ADDRESS": "127.0.0.1:9"}
    command = [sys.executable, "-m", "cluster.cli", "doctor", "--json"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    findings = {f["name"]: f for f in json.loads(done.stdout)}
    assert {"python", "packages", "cpus", "gpus", "package names"} <= set(findings)
    assert all(f["advice"] for f in findings.values() if f["status"] != "ok")
    assert findings["RAY_ADDRESS"]["status"] == "problem"
    assert findings["RAY_ADDRESS"]["found"] == "127.0.0.1:9 does not answer"
    assert done.returncode == 1


def test_wrong_and_absent_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["numpy<1", "no-such-thing>=2", "pyyaml>=6", "absent-extra; extra == 'econ'"]
    monkeypatch.setattr(metadata, "requires", lambda name: texts)
    by_name = {f.name: f for f in doctor.packages()}
    assert by_name["numpy"].status == "problem"
    assert by_name["numpy"].found == metadata.version("numpy")
    assert by_name["no-such-thing"] == Finding(
        "no-such-thing", "problem", "not installed", "pip install 'no-such-thing>=2'"
    )
    assert by_name["packages"].found == f"pyyaml {metadata.version('pyyaml')}"
    (extra,) = (f for f in doctor.extras() if f.name == "extra econ")
    assert (extra.status, extra.advice) == ("warning", "pip install 'corymb[econ]'")


def test_another_package_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.rooms().status in ("ok", "warning")
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "envs", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    finding = doctor.rooms()
    assert finding.status == "problem"
    assert str(tmp_path / "envs") in finding.found


def test_another_distribution_of_the_same_name(monkeypatch: pytest.MonkeyPatch) -> None:
    owners = {"envs": ["corymb", "gym-envs"], "cluster": ["corymb"]}
    monkeypatch.setattr(metadata, "packages_distributions", lambda: owners)
    finding = doctor.rooms()
    assert finding.status == "warning"
    assert "pip uninstall gym-envs" in finding.advice


@pytest.mark.parametrize(
    ("ray", "threads", "advice"),
    [(4, 4, ""), (4, 2, ""), (16, 4, "--num-cpus 4"), (4, 16, "OMP_NUM_THREADS=4")],
)
def test_cpus(ray: int, threads: int, advice: str) -> None:
    finding = doctor.cpus(View(4, (), ray_cpus=ray, torch_threads=threads))
    assert finding.status == ("warning" if advice else "ok")
    assert advice in finding.advice


def test_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    two = ("H200, 143771 MiB", "H200, 143771 MiB")
    agree = doctor.gpus(View(4, two, ray_gpus=2, torch_gpus=2, torch_cuda="13.0"))
    assert (agree.status, agree.advice) == ("ok", "")
    built_for_cpus = doctor.gpus(View(4, two, ray_gpus=2, torch_gpus=0))
    assert built_for_cpus.status == "warning"
    assert "built for CPUs only" in built_for_cpus.advice
    old_driver = View(4, two, ray_gpus=2, torch_gpus=0, torch_cuda="13.0")
    assert "CUDA 13.0" in doctor.gpus(old_driver).advice
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    hidden = doctor.gpus(View(4, two, ray_gpus=1, torch_gpus=1, torch_cuda="13.0"))
    assert hidden.status == "ok"
    assert "CUDA_VISIBLE_DEVICES=1" in hidden.found


def test_packages_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "ray._private.accelerators", None)
    view, findings = doctor.look()
    assert [f.name for f in findings] == ["import ray", "import torch"]
    assert (view.ray_cpus, view.torch_gpus) == (None, None)
    assert doctor.cpus(view).status == doctor.gpus(view).status


@pytest.mark.parametrize(
    ("free", "used", "status"),
    [(90.0, 10.0, "ok"), (1.0, 1.0, "warning"), (0.1, 1.0, "problem"), (4.0, 96.0, "warning")],
)
def test_disk(
    free: float, used: float, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(
        free=free * doctor.GIB, used=used * doctor.GIB, total=(free + used) * doctor.GIB
    )
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    finding = doctor.disk("temporary folder", tmp_path / "not" / "there" / "yet")
    assert finding.status == status
    assert bool(finding.advice) == (status != "ok")


def test_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    finding = doctor.disk("runs folder", tmp_path / "runs")
    assert (finding.status, finding.advice) == ("problem", "set `output` to another one")


def test_small_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(doctor.shared_memory(tmp_path / "no such folder")) == []
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=64 * 2**20))
    (finding,) = doctor.shared_memory(tmp_path)
    assert finding.status == "warning"
    assert "--shm-size" in finding.advice


def test_address(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.address().status == "ok"
    server = grpc.server(ThreadPoolExecutor(1))  # as a head node listens for Ray Client
    where = f"ray://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    monkeypatch.setenv("RAY_ADDRESS", where)
    server.start()
    assert doctor.address() == Finding("RAY_ADDRESS", "ok", f"{where} answers")
    server.stop(1).wait()
    assert doctor.address().status == "problem"


def test_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(path))
    assert list(doctor.token()) == []
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    statuses = [f.status for f in doctor.token()]
    path.write_text("secret")
    path.chmod(0o644)
    statuses += [f.status for f in doctor.token()]
    path.chmod(0o600)
    statuses += [f.status for f in doctor.token()]
    assert statuses == ["problem", "warning", "ok"]
