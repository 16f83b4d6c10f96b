"""Recipe irl from run file to report, to an exported controller, and after a stop."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster import config as configuration
from cluster.config import ConfigError
from cluster.errors import CorymbError
from cluster.execute import start as started
from trainers.control.controller import FOLDER, load_from
from trainers.control.demonstrations.truth import read_truth
from trainers.control.export import export_run
from trainers.control.irl.config import Config
from trainers.control.predict import predict_file

CHANGES = [{"name": "fouled jacket", "factors": {"U": 0.9}}, {"name": "up", "modes": [91.0, 87.0]}]


def start(folder: Path, **values: Any) -> Any:
    file = folder / f"{values['recipe']}.yaml"
    file.write_text(json.dumps({"preset": "smoke", "output": "runs", **values}))
    return started(configuration.load(file))


def test_from_demonstrations_to_a_reward_that_is_tried(tmp_path: Path) -> None:
    run = start(tmp_path, recipe="irl", transfer={"changes": CHANGES})
    result = json.loads((run.path / "result.json").read_text())
    figures, baselines = result["figures"], result["baselines"]
    each = [
        figures[f"ratio_to_best_cloned.{change}.{mode}"]["value"]
        for change in ("fouled_jacket", "up")
        for mode in (1, 2)
    ]
    assert figures["ratio_to_best_cloned"]["value"] == pytest.approx(np.mean(each))
    assert "pi.ratio_to_best_cloned" in baselines
    assert figures["irl.iae.90"]["value"] / baselines["pi.iae.90"]["value"] == pytest.approx(
        figures["iae_ratio_to_pi.90"]["value"]
    )
    assert {"reward_peak_error.90", "reward_rank_correlation.86"} <= set(figures)
    (table,) = [s["table"] for s in result["sections"] if s["title"] == "On changed plants"]
    assert table["columns"] == ["Change", "fresh", "irl", "clone", "plain clone", "pi", "ratio"]
    row = table["rows"][0]
    assert float(row[1]) / min(float(row[3]), float(row[4])) == pytest.approx(
        float(row[6]), rel=2e-3
    )
    for name in ("plots/transfer.svg", "plots/reward-90.svg", "plots/z.svg", "report.html"):
        assert (run.path / name).stat().st_size > 1000
    kept = load_from(run.path)
    assert kept.observations == ("CA", "T", "TC", "b", "error", "integral")
    assert max(export_run(run.path, tmp_path / "out").values()) < 1e-4
    (tmp_path / "rows.csv").write_text("CA,T,TC,b,error,integral\n1.13,88,50,0.4,2,0\n")
    said = predict_file(run.path, tmp_path / "rows.csv", 0, None)
    assert 0 <= float(said.splitlines()[1].split(",")[-1]) <= 1


def test_where_the_set_point_is_hidden_the_reward_reads_the_temperature(tmp_path: Path) -> None:
    plant = {"observe": ["CA", "T", "TC", "b"]}
    run = start(tmp_path, recipe="irl", plant=plant, transfer={"changes": CHANGES[:1]})
    figures = json.loads((run.path / "result.json").read_text())["figures"]
    assert "ratio_to_best_cloned.fouled_jacket.2" in figures
    assert load_from(run.path).observations == ("CA", "T", "TC", "b")


def test_the_bioreactor_is_learnt_from_a_file(tmp_path: Path) -> None:
    recorded = start(
        tmp_path, recipe="expert", preset="bioreactor", trajectories=24, rows=2,
        policy={"iterations": 2, "rows": 8, "samples": 20, "minibatch": 80, "gamma": 1.0},
    )  # fmt: skip
    truth = recorded.path / "truth.parquet"
    run = start(
        tmp_path, recipe="irl", plant={"kind": "bioreactor"},
        data={"path": str(recorded.path / "demonstrations.parquet"), "truth": str(truth)},
        policy={"rows": 8, "samples": 20, "iterations": 2},
        transfer={"changes": [{"name": "other yields", "modes": [0.55, 0.65]}]},
    )  # fmt: skip
    figures = json.loads((run.path / "result.json").read_text())["figures"]
    assert figures["ratio_to_best_cloned"]["better"] == "higher"
    assert "irl.return.k05" in figures
    assert len(read_truth(truth)) == 24
    assert (run.path / FOLDER).is_dir()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"reward": {"form": "action"}}, "set disturbed to 0"),
        ({"transfer": {"changes": [CHANGES[0], CHANGES[0]]}}, "two are called 'fouled jacket'"),
        (
            {"reward": {"simulator": "truth"}, "data": {"path": "demonstrations.parquet"}},
            "data.truth is not given",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_before_it_starts(
    tmp_path: Path, values: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        start(tmp_path, recipe="irl", **values)


def test_a_training_that_diverges_says_where(tmp_path: Path) -> None:
    with pytest.raises(CorymbError, match=r"Inverse RL, seed 0 diverged.*Lower policy\.lr"):
        start(tmp_path, recipe="irl", policy={"lr": 1e30, "iterations": 4, "rows": 4})


def test_a_run_file_that_changes_one_setting_keeps_the_others(tmp_path: Path) -> None:
    values = {"policy": {"lr": 1e-4, "hidden": [32]}, "transfer": {"policy": {"iterations": 9}}}
    file = tmp_path / "run.yaml"
    file.write_text(json.dumps({"recipe": "irl", **values}))
    config = configuration.load(file).config
    assert isinstance(config, Config)
    assert (config.policy.lr, config.policy.rows, config.policy.iterations) == (1e-4, 64, 40)
    assert config.policy.hidden == (32,)
    fresh = config.transfer.policy
    assert (fresh.iterations, fresh.samples, fresh.rows) == (9, 100, 64)
