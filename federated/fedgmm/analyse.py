"""One study's conversation between server and clients, estimator by estimator."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from cluster.run import Run
from federated.federation import Federation
from federated.fedgmm import baselines, linear, neural
from federated.fedgmm.config import Config, GameSettings
from federated.fedgmm.design import Array, Design, Scale
from federated.fedgmm.estimators import (
    Curve,
    FirstStage,
    Sums,
    control_curve,
    direct_curve,
    federated_scale,
    first_stage,
    moment_sums,
    polynomial_curve,
    sieve_curve,
    total,
    two_step,
)
from federated.fedgmm.linear import Coefficient
from federated.fedgmm.networks import Network
from federated.fedgmm.studies import Study
from federated.fedgmm.train import DivergedError, Trained, players_of, train

Predict = Callable[[Array], Array]

DIRECT_SMOOTHING = 1e-6

NEURAL_HIDDEN = (20, 3)
"""Hidden widths of the neural g that is fitted to summed moments, those of the reference."""


@dataclass
class CurveFindings:
    """What was found about g in one study.

    Attributes
    ----------
    curves : estimates with standard errors, by estimator.
    predictions : every estimate of g, also those without standard errors, by name.
    baselines : the same for what a user would otherwise do.
    rounds : communication rounds of each estimator, after the two that standardise.
    """

    study: Study
    scale: Scale
    stage: FirstStage
    curves: dict[str, Curve] = field(default_factory=dict)
    predictions: dict[str, Predict] = field(default_factory=dict)
    baselines: dict[str, Predict] = field(default_factory=dict)
    local: list[Curve] = field(default_factory=list)
    games: dict[str, Trained] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    fit: neural.Fit | None = None
    diverged: dict[str, str] = field(default_factory=dict)

    def error(self, predict: Predict) -> float:
        """Mean squared error against the truth on test treatments, in units of Var(y)."""
        truth = self.study.dataset.truth
        if truth is None:
            raise ValueError(f"study '{self.study.name}' has no truth to compare with")
        x = truth.test_x
        return float(np.mean((predict(x) - truth.function(x)) ** 2)) / self.study.variance


@dataclass
class LinearFindings:
    """What was found about the coefficients in one study, in the units of the data."""

    study: Study
    scale: Scale
    estimates: dict[str, list[Coefficient]]
    baselines: dict[str, list[Coefficient]]
    local: list[Coefficient | None]
    local_rows: list[int]
    first_stage_f: list[float]
    anderson_rubin: tuple[float, float] | None
    j: tuple[float, float, float] | None
    games: dict[str, list[float]]
    rounds: dict[str, int]


Findings = CurveFindings | LinearFindings


def analyse(federation: Federation, study: Study, config: Config, run: Run) -> Findings:
    """Estimate everything the configuration asks for in one study."""
    run.say(f"{study.name}: {study.describe_clients()}")
    rows = study.dataset.rows
    scale = federated_scale(federation, rows.x.shape[1], rows.z.shape[1])
    if study.kind == "linear":
        return _linear(federation, study, scale, config, run)
    return _curve(federation, study, scale, config, run)


def _linear(
    federation: Federation, study: Study, scale: Scale, config: Config, run: Run
) -> LinearFindings:
    p, q = scale.treatments, scale.instruments
    before = federation.exchanges
    sums = moment_sums(federation, Design("linear", scale))
    one_round = federation.exchanges - before
    gmm = two_step(federation, sums)
    unit = scale.sd[0] / scale.sd[1 : 1 + p]
    estimates = {
        "2sls": linear.coefficients(linear.two_stage(sums.total), unit),
        "gmm": linear.coefficients(gmm, unit),
    }
    alone = [
        None if e is None else linear.coefficients(e, unit)[0]
        for e in baselines.local_estimates(sums)
    ]
    sizes = [m.rows for m in federation.members]
    rows = study.dataset.rows
    found = {"ols": baselines.pooled_ols(rows), "pooled_2sls": baselines.pooled_2sls(rows)}
    average = average_of(alone, sizes)
    if average is not None:
        found["average_of_local_2sls"] = [average]
    weak_safe = None
    if p == 1:
        low, high = linear.anderson_rubin(sums.total, q)
        weak_safe = (low * float(unit[0]), high * float(unit[0]))
    trained = {
        name: _play(federation, study, scale, run, name, replace_hidden(settings))
        for name, settings in config.games.items()
        if config.model == "linear"  # only where asked for: the sums already solve it
    }
    return LinearFindings(
        study, scale, estimates, found, alone, sizes,
        linear.first_stage_f(sums.total, p, q), weak_safe,
        None if gmm.j is None else (gmm.j, float(gmm.j_df or 0), float(gmm.j_p or 0)),
        {name: [float(t.theta[i] * unit[i]) for i in range(p)] for name, t in trained.items()},
        {"2sls": one_round, "gmm": one_round + 1},
    )  # fmt: skip


def replace_hidden(settings: GameSettings) -> GameSettings:
    """The same game with linear players, whose solution is GMM with linear instruments."""
    return settings.model_copy(update={"hidden_g": (), "hidden_f": ()})


def average_of(alone: list[Coefficient | None], sizes: list[int]) -> Coefficient | None:
    """Average of the clients' own estimates, weighted by rows, over those that have one."""
    have = [(c, n) for c, n in zip(alone, sizes, strict=True) if c is not None]
    if not have:
        return None
    weights = np.array([n for _, n in have]) / sum(n for _, n in have)
    value = float(weights @ np.array([c.value for c, _ in have]))
    return Coefficient(value, float(np.sqrt(weights**2 @ np.array([c.se**2 for c, _ in have]))))


def _curve(
    federation: Federation, study: Study, scale: Scale, config: Config, run: Run
) -> CurveFindings:
    settings = config.curve
    stage = first_stage(federation, scale, settings.splines, settings.index_splines)
    found = CurveFindings(study, scale, stage)
    sums = moment_sums(federation, stage.design)
    for name in config.estimators:
        run.say(f"{study.name}: {name}")
        before = federation.exchanges
        if name == "neural":
            found.fit = _neural(federation, stage, sums, study.seed)
            found.predictions[name] = network_curve(found.fit.theta, scale, NEURAL_HIDDEN)
        else:
            found.curves[name] = _moment_curve(name, federation, stage, sums, config)
        found.rounds[name] = federation.exchanges - before + 2
    direct = direct_curve(sums, DIRECT_SMOOTHING)
    found.baselines["direct"] = mean_of(direct)
    rows = study.dataset.rows
    found.baselines["pooled_2sls"] = _line(baselines.pooled_2sls(rows)[0].value, scale)
    found.baselines["pooled_polynomial_2sls"] = lambda x: baselines.pooled_polynomial(rows, x)
    found.local = baselines.local_curves(sums, settings.smoothing)
    weights = np.array([m.rows for m in federation.members]) / scale.n
    found.baselines["average_of_local"] = _average(found.local, weights)
    found.predictions |= {key: mean_of(curve) for key, curve in found.curves.items()}
    for variant, game in config.games.items():
        before = federation.exchanges
        try:
            found.games[variant] = _play(federation, study, scale, run, variant, game, found)
        except DivergedError as error:
            run.warn(f"{study.name}: {variant}: {error}")
            found.diverged[variant] = str(error)
            continue
        found.predictions[variant] = network_curve(found.games[variant].theta, scale, game.hidden_g)
        found.rounds[variant] = federation.exchanges - before
    return found


def _moment_curve(
    name: str, federation: Federation, stage: FirstStage, sums: Sums, config: Config
) -> Curve:
    if name == "sieve":
        return sieve_curve(federation, stage, sums, config.curve.smoothing)
    if name == "control":
        return control_curve(federation, stage)
    return polynomial_curve(federation, stage.design.scale)


def _neural(federation: Federation, stage: FirstStage, sums: Sums, seed: int) -> neural.Fit:
    network = Network((1 + stage.design.scale.controls, *NEURAL_HIDDEN, 1))
    return neural.fit(
        lambda name, arrays, settings: total(federation.ask(name, arrays, settings)),
        stage.design,
        np.asarray(sums.total["bb"]),
        network,
        seed,
    )


def _play(
    federation: Federation,
    study: Study,
    scale: Scale,
    run: Run,
    name: str,
    settings: GameSettings,
    found: CurveFindings | None = None,
) -> Trained:
    key = f"{study.name}.{name}"

    def evaluate(theta: Array) -> dict[str, float]:
        if found is None or study.dataset.truth is None:
            return {}
        return {"mse": found.error(network_curve(theta, scale, settings.hidden_g))}

    def report(number: int, metrics: dict[str, float]) -> None:
        run.log(number, **{f"{key}/{k}": v for k, v in metrics.items()})
        values = " ".join(f"{k} {v:.4g}" for k, v in metrics.items())
        run.say(f"{key}: round {number} of {settings.rounds}, {values}")

    return train(
        federation, scale, players_of(scale, settings), settings, study.seed, evaluate, report,
        RunStore(run, key),
    )  # fmt: skip


@dataclass(frozen=True)
class RunStore:
    """Checkpoints of one game in the run directory."""

    run: Run
    key: str

    def save(self, step: int, arrays: Any, state: Any) -> None:
        """Keep the state after a round."""
        self.run.save(step, arrays, state, name=self.key)

    def load(self) -> tuple[int, dict[str, Array], dict[str, Any]] | None:
        """The newest state, if the run has one."""
        return self.run.load(self.key)


def network_curve(theta: Array, scale: Scale, hidden: tuple[int, ...]) -> Predict:
    """g of a network as a function of the treatment, with controls at their means."""
    network = Network((1 + scale.controls, *hidden, 1))
    flat = torch.from_numpy(np.array(theta))

    def predict(x: Array) -> Array:
        inputs = np.zeros((len(x), 1 + scale.controls))
        inputs[:, 0] = (x - scale.mean[1]) / scale.sd[1]
        with torch.no_grad():
            g = network(flat, torch.from_numpy(inputs)).numpy()
        return np.asarray(g * scale.sd[0] + scale.mean[0])

    return predict


def mean_of(curve: Curve) -> Predict:
    """The curve's g without its standard error."""
    return lambda x: curve.predict(x)[0]


def _line(slope: float, scale: Scale) -> Predict:
    return lambda x: scale.mean[0] + slope * (x - scale.mean[1])


def _average(curves: list[Curve], weights: Array) -> Predict:
    return lambda x: np.asarray(
        sum(w * c.predict(x)[0] for w, c in zip(weights, curves, strict=True))
    )
