"""The recipe from its configuration to its evidence, in this process."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cluster.config import ConfigError, load
from cluster.errors import UsageError
from cluster.evidence import Result
from cluster.execute import Requirement, resume, start
from cluster.run import Run
from federated.fedgmm import example
from federated.fedgmm.config import Config
from federated.fedgmm.studies import studies

QUICK = ["engine=in_process"]


def run(tmp_path: Path, *sets: str, preset: str = "smoke") -> tuple[Path, Result]:
    """Run the recipe in this process and return its directory and result."""
    loaded = load(
        None, recipe="fedgmm", preset=preset, sets=[*QUICK, f"output={tmp_path / 'runs'}", *sets]
    )
    done = start(loaded)
    return done.path, done.result


def table(folder: Path, text: str) -> Path:
    path = folder / "rows.csv"
    path.write_text(text)
    return path


FILE = [
    "data.source=file", "data.outcome=recovery_days", "data.treatments=[dose]",
    "data.instruments=[distance_km]", "data.controls=[age]", "data.client=clinic",
]  # fmt: skip


@pytest.mark.parametrize("preset", ["smoke", "small", "paper", "demo"])
def test_presets_are_valid_and_have_a_plan(preset: str) -> None:
    config = load(None, recipe="fedgmm", preset=preset).config
    assert config.plan().steps > 0
    assert config.plan().bundles == ({"CPU": 1.0},)


def test_a_curve_run_has_figures_baselines_plots_and_client_rows(tmp_path: Path) -> None:
    path, result = run(tmp_path, "seeds=[0,1]", "estimators=[sieve,control,polynomial]")
    assert set(result.figures) >= {"mse.sieve", "mse.control", "mse.polynomial", "mse.fedoadam"}
    assert set(result.baselines) >= {
        "mse.direct", "mse.pooled_2sls", "mse.pooled_polynomial_2sls", "mse.local",
        "mse.average_of_local",
    }  # fmt: skip
    sieve = result.figures["mse.sieve"]
    assert sieve.n == 2
    assert sieve.low is not None
    assert sieve.low < sieve.value < result.baselines["mse.direct"].value
    assert result.figures["mse.polynomial"].value == pytest.approx(
        result.baselines["mse.pooled_polynomial_2sls"].value, rel=1e-6
    )
    html = (path / "report.html").read_text()
    assert html.count("<svg") == 2
    assert sorted(p.name for p in (path / "clients").iterdir()) == ["abs-0", "abs-1"]
    logged = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert sum("abs-0.fedoadam/mse" in line for line in logged) == 4


def test_card_run_says_what_the_textbook_says(tmp_path: Path) -> None:
    _, result = run(tmp_path, "data.source=card")
    assert round(result.figures["educ.2sls"].value, 4) == 0.1315
    assert result.figures["educ.2sls"].value == pytest.approx(
        result.baselines["educ.pooled_2sls"].value, rel=1e-9
    )
    assert round(result.baselines["educ.ols"].value, 4) == 0.0747
    rows = {row[0]: row[1] for row in result.sections[0].table.rows}  # type: ignore[union-attr]
    assert "educ: New England alone (n = 140)" in rows
    assert rows["Hansen's J test, p-value"] == "just identified, nothing to test"


def test_mroz_run_has_a_j_test_and_three_random_clients(tmp_path: Path) -> None:
    _, result = run(tmp_path, "data.source=mroz", "partition.clients=3")
    assert round(result.figures["educ.2sls"].value, 4) == 0.0614
    assert 0 < result.figures["j_p"].value < 1


def test_the_example_finds_its_true_effect(tmp_path: Path) -> None:
    path = table(tmp_path, example.table())
    _, result = run(tmp_path, f"data.path={path}", *FILE)
    found = result.figures["dose.2sls"]
    assert found.low is not None
    assert found.high is not None
    assert found.low < example.TRUE_EFFECT < found.high
    assert not found.low < result.baselines["dose.ols"].value < found.high


def test_a_file_can_be_a_curve(tmp_path: Path) -> None:
    path = table(tmp_path, example.table())
    _, result = run(tmp_path, f"data.path={path}", *FILE, "model=curve")
    slope = result.figures["slope.sieve"].value
    assert abs(slope - example.TRUE_EFFECT) < abs(
        result.baselines["slope.direct"].value - example.TRUE_EFFECT
    )


def test_one_seed_repeats_to_the_digit_and_partitions_do_not_matter_to_sums(
    tmp_path: Path,
) -> None:
    _, first = run(tmp_path, "seeds=[3]")
    _, again = run(tmp_path, "seeds=[3]")
    assert {k: f.value for k, f in first.figures.items()} == {
        k: f.value for k, f in again.figures.items()
    }
    _, skewed = run(tmp_path, "seeds=[3]", "partition.by=treatment", "partition.clients=7")
    assert skewed.figures["mse.sieve"].value == pytest.approx(
        first.figures["mse.sieve"].value, abs=1e-9
    )
    assert skewed.figures["mse.fedoadam"].value != first.figures["mse.fedoadam"].value
    assert any("endogenous" in warning for warning in skewed.warnings)


class PowerCutError(RuntimeError):
    pass


def test_a_run_killed_in_a_round_resumes_to_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = ["games.fedoadam.rounds=24", "seeds=[0,1]"]
    _, unbroken = run(tmp_path, *sets)
    log = Run.log

    def cut(self: Run, step: int, **metrics: float) -> None:
        log(self, step, **metrics)
        if step == 17 and any(key.startswith("abs-1") for key in metrics):
            raise PowerCutError

    monkeypatch.setattr(Run, "log", cut)
    with pytest.raises(Exception, match="PowerCut"):
        run(tmp_path / "broken", *sets)
    monkeypatch.setattr(Run, "log", log)
    (path,) = (tmp_path / "broken" / "runs").iterdir()
    resumed = resume(path).result
    assert {k: f.value for k, f in resumed.figures.items()} == {
        k: f.value for k, f in unbroken.figures.items()
    }


def test_a_diverged_game_is_left_out_and_said(tmp_path: Path) -> None:
    _, result = run(tmp_path, "games.wild={optimizer: sgd, lr_g: 500, lr_f: 500, rounds: 5}")
    assert "mse.wild" not in result.figures
    assert "mse.sieve" in result.figures
    assert any("diverged in round" in warning for warning in result.warnings)


def test_resuming_with_other_data_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path, example.table())
    sets = [*QUICK, f"output={tmp_path}", f"data.path={path}", *FILE]
    done = start(load(None, recipe="fedgmm", preset="smoke", sets=sets))
    record = json.loads((done.path / "run.json").read_text())
    (done.path / "run.json").write_text(json.dumps({**record, "status": "failed"}))
    table(tmp_path, example.table(rows=900))
    with pytest.raises(UsageError, match="changed since this run began"):
        resume(done.path)


def test_weak_instruments_are_warned_of(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = ["y,x,z"] + [f"{a:.4f},{b:.4f},{c:.4f}" for a, b, c in rng.normal(size=(300, 3))]
    path = table(tmp_path, "\n".join(lines))
    _, result = run(
        tmp_path, "data.source=file", f"data.path={path}", "data.outcome=y",
        "data.treatments=[x]", "data.instruments=[z]",
    )  # fmt: skip
    assert any(w.startswith("Weak instruments: the first-stage F of x") for w in result.warnings)


def test_a_client_too_small_to_estimate_alone_still_counts(tmp_path: Path) -> None:
    text = example.table() + "tiny,25.0,10.0,5.0,50\n"
    _, result = run(tmp_path, f"data.path={table(tmp_path, text)}", *FILE)
    assert any("cannot estimate the effect from their own" in w for w in result.warnings)
    assert result.figures["dose.2sls"].n == 1201


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["data.source=abss"], "did you mean 'abs'"),
        (["data.source=file"], "source 'file' also needs path, outcome"),
        (["data.rows=2000", "partition.clients=3000"], "3000 clients are more than the 2000 rows"),
        (["games.fedoadam.lr=0.1"], "unknown key"),
        (["games.x={control_variates: true, optimizer: oadam}"], "needs optimizer 'sgd'"),
        (["partition.by=column"], "has no client column"),
        (["partition.alpha=0"], "must be more than 0"),
    ],
)
def test_configurations_that_cannot_run_say_so(
    tmp_path: Path, sets: list[str], message: str
) -> None:
    with pytest.raises((ConfigError, UsageError), match=message) as error:
        run(tmp_path, *sets)
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.replace("distance_km", "distance"), "distance_km"),
        (lambda t: t.replace(",10", ",ten", 1), "ten"),
        (lambda t: t.replace("clinic 1,", "clinic 1,nan", 1), "nan"),
        (lambda t: "\n".join(line.rsplit(",", 2)[0] + ",7,50" if i else line
                             for i, line in enumerate(t.splitlines())), "constant"),
        (lambda _: "", "empty"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_used_say_where(
    tmp_path: Path, change: Callable[[str], str], message: str
) -> None:
    path = table(tmp_path, change(example.table()))
    with pytest.raises(UsageError, match=message) as error:
        run(tmp_path, f"data.path={path}", *FILE)
    assert error.value.exit_code == 2


def test_random_partitions_make_one_study_a_seed_and_columns_one_in_all() -> None:
    drawn = load(None, recipe="fedgmm", preset="smoke", sets=["seeds=[0,1,2]"]).config
    card = load(
        None, recipe="fedgmm", preset="smoke", sets=["seeds=[0,1,2]", "data.source=card"]
    ).config
    assert isinstance(drawn, Config)
    assert isinstance(card, Config)
    assert [s.name for s in studies(drawn)] == ["abs-0", "abs-1", "abs-2"]
    assert [s.name for s in studies(card)] == ["card-0"]


def test_thresholds_are_compared_with_figures(tmp_path: Path) -> None:
    _, result = run(tmp_path)
    assert Requirement.parse("mse.sieve<=1").miss(result) is None
    assert "required <= 0" in str(Requirement.parse("mse.sieve<=0").miss(result))
