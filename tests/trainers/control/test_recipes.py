"""Recipes expert and imitate from run file to report, and what they refuse."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster import config as configuration
from cluster.config import ConfigError
from cluster.errors import CorymbError, UsageError
from cluster.execute import start as started
from trainers.control.controller import FOLDER, load
from trainers.control.demonstrations import parquet
from trainers.control.demonstrations.truth import read_truth


def start(folder: Path, **values: Any) -> Any:
    file = folder / f"{values['recipe']}.yaml"
    file.write_text(json.dumps({"preset": "smoke", "output": "runs", **values}))
    return started(configuration.load(file))


def done(folder: Path, **values: Any) -> tuple[Path, dict[str, Any]]:
    path = start(folder, **values).path
    return path, json.loads((path / "result.json").read_text())


def test_pi_is_recorded_without_labels_and_cloned_from_the_file(tmp_path: Path) -> None:
    recorded, result = done(tmp_path, recipe="expert")
    file = recorded / "demonstrations.parquet"
    data = parquet.read(file)
    assert (len(data), data.observations, data.actions) == (32, ("CA", "T", "TC", "b"), ("m",))
    assert result["figures"]["iae_ratio_to_bound.90"]["value"] == pytest.approx(1.976, abs=0.002)
    assert result["figures"]["iae_ratio_to_bound.86"]["value"] == pytest.approx(1.598, abs=0.002)
    truth = read_truth(recorded / "truth.parquet")
    assert sorted(truth.values()) == [0] * 16 + [1] * 16
    assert [truth[i] for i in data.ids.tolist()] != sorted(truth.values())  # shuffled

    cloned, result = done(
        tmp_path, recipe="imitate",
        data={"path": str(file), "truth": str(recorded / "truth.parquet")},
    )  # fmt: skip
    assert result["figures"]["mode_accuracy_20"]["n"] == 1
    assert {"pi.iae.90", "plain clone.iae.86", "clone.iae.90"} <= {
        *result["figures"], *result["baselines"]
    }  # fmt: skip
    kept = load(cloned / FOLDER)
    assert kept.observations == ("CA", "T", "TC", "b")
    assert (kept.low, kept.high) == ((0.0,), (1.0,))
    assert kept.codes.tolist() in ([[1, 0], [0, 1]], [[0, 1], [1, 0]])


def test_a_learnt_expert_of_the_bioreactor_is_recorded(tmp_path: Path) -> None:
    path, result = done(
        tmp_path, recipe="expert", preset="bioreactor", trajectories=6, exploration=0.5, rows=2,
        policy={"iterations": 2, "rows": 8, "samples": 20, "minibatch": 80, "gamma": 1.0},
    )  # fmt: skip
    data = parquet.read(path / "demonstrations.parquet")
    assert (data.observations, data.actions) == (("y1", "y2", "to_go"), ("u1", "u2"))
    assert data.length.tolist() == [20] * 6
    assert ((data.u >= 0) & (data.u <= 5)).all()
    assert len(np.unique(data.u[:, 0, 0])) == 6  # explored: no two trajectories are alike
    assert 0 < result["figures"]["ratio_to_optimum.k05"]["value"] < 1


def test_a_file_without_truth_is_judged_in_closed_loop_alone(tmp_path: Path) -> None:
    recorded, _ = done(tmp_path, recipe="expert")
    file = str(recorded / "demonstrations.parquet")
    _, result = done(tmp_path, recipe="imitate", data={"path": file})
    assert not [name for name in result["figures"] if name.startswith("mode_accuracy")]
    assert "iae_ratio_to_pi.90" in result["figures"]


def test_a_plant_that_cannot_be_simulated_is_not_run(tmp_path: Path) -> None:
    recorded, _ = done(tmp_path, recipe="expert")
    foreign = tmp_path / "foreign.parquet"
    parquet.write(foreign, parquet.read(recorded / "demonstrations.parquet"))
    _, result = done(tmp_path, recipe="imitate", data={"path": str(foreign)})
    assert any("not run in closed loop" in warning for warning in result["warnings"])
    assert "clone.iae.90" not in result["figures"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"recipe": "expert", "plant": {"kind": "bioreactor"}}, "use expert 'learnt'"),
        ({"recipe": "expert", "trajectories": 2, "plant": {"modes": [85.0, 87.0, 89.0]}}, "fewer"),
        ({"recipe": "imitate", "plant": {"kind": "bioreactor"}}, "give data.path"),
        ({"recipe": "imitate", "data": {"truth": "truth.parquet"}}, "truth goes with a path"),
    ],
)
def test_what_cannot_be_run_is_refused_before_it_starts(
    tmp_path: Path, values: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        start(tmp_path, **values)
    assert not (tmp_path / "runs").exists()


def test_fewer_trajectories_than_modes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="24 trajectories for 30 modes"):
        start(tmp_path, recipe="imitate", clone={"modes": 30, "steps": 5})


@pytest.mark.parametrize("algorithm", ["ppo", "trpo"])
def test_an_expert_that_diverges_says_where(tmp_path: Path, algorithm: str) -> None:
    policy = {"algorithm": algorithm, "iterations": 3, "rows": 4, "samples": 10, "lr": 1e30}
    with pytest.raises(CorymbError, match=r"diverged in iteration \d.*Lower policy\.lr"):
        start(tmp_path, recipe="expert", expert="learnt", policy=policy)
