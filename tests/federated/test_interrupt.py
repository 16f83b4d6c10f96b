"""A federated run on Ray that is told to stop leaves a checkpoint, says so, and goes on later."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_sigterm_in_a_simulation_keeps_a_checkpoint_and_exits_130(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        "recipe: fedgmm\npreset: smoke\ngames: {fedoadam: {rounds: 5000}}\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "cluster.cli", "run", "run.yaml"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 150
        while not _steps(tmp_path) and time.monotonic() < deadline:
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert out == ""
    assert "corymb resume" in err
    (path,) = (tmp_path / "runs").iterdir()
    assert json.loads((path / "run.json").read_text())["status"] == "interrupted"
    index = json.loads((path / "checkpoints" / "index.json").read_text())
    assert index["abs-0.fedoadam"][-1]["step"] == _steps(tmp_path)[-1]


def _steps(folder: Path) -> list[int]:
    """Rounds of the game logged so far."""
    lines = [
        json.loads(line)
        for file in folder.glob("runs/*/metrics.jsonl")
        for line in file.read_text().splitlines()
        if line.endswith("}")
    ]
    return [line["step"] for line in lines if "abs-0.fedoadam/mse" in line]
