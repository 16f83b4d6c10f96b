"""The server's conversation about one study with images.

Three ways to g, on the same clients: the game of networks (FedGDA), the closed form on what
networks learnt to predict (learnt columns in the place of splines, then the penalised GMM of the
sieve), and direct regression, which ignores that the treatment is endogenous.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from flwr.app import Message

from cluster.run import Run
from federated.federation import Federation, pack
from federated.fedgmm import sieve
from federated.fedgmm.analyse import RunStore
from federated.fedgmm.config import Config, GameSettings, ImageSettings
from federated.fedgmm.design import Array, Arrays, Scale
from federated.fedgmm.estimators import federated_scale, total
from federated.fedgmm.game import Player, Players
from federated.fedgmm.images.client import treatment_columns
from federated.fedgmm.images.convnet import ConvNetwork
from federated.fedgmm.images.files import Pixels
from federated.fedgmm.images.scenarios import ImageData
from federated.fedgmm.images.views import View
from federated.fedgmm.linear import Estimate
from federated.fedgmm.networks import Network
from federated.fedgmm.rows import Floats
from federated.fedgmm.strategy import FedGDA, ServerStep
from federated.fedgmm.train import DivergedError, Trained, train
from federated.partition import Parts
from federated.streams import stream

SPLINES_X = 25
SPLINES_Z = 20

DIRECT_SHARE = 0.01
"""Penalty of the direct regression, relative to the GMM's: it is well posed and needs little."""

CHECKPOINT_EVERY = 5

ROLES = {"images_x": ("x",), "images_z": ("z",), "images_xz": ("x", "z")}


@dataclass(frozen=True)
class ImageStudy:
    """One draw of an image scenario, dealt to clients."""

    name: str
    data: ImageData
    parts: Parts
    labels: list[str]
    seed: int

    @property
    def variance(self) -> float:
        """Variance of the outcome over all rows, the unit of reported errors."""
        return float(self.data.y.var())


@dataclass
class ImageFindings:
    """What was found in one study.

    Attributes
    ----------
    predictions, baselines : g at the test treatments, by estimator, in the units of y.
    games : histories of FedGDA.
    rounds : communication rounds of each estimator.
    """

    study: ImageStudy
    predictions: dict[str, Floats] = field(default_factory=dict)
    baselines: dict[str, Floats] = field(default_factory=dict)
    games: dict[str, Trained] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    diverged: dict[str, str] = field(default_factory=dict)

    def error(self, prediction: Floats) -> float:
        """Mean squared error against the truth at the test treatments, in units of Var(y)."""
        return float(np.mean((prediction - self.study.data.test_g0) ** 2)) / self.study.variance


def analyse_images(
    federation: Federation, study: ImageStudy, config: Config, run: Run
) -> ImageFindings:
    """Estimate g in one study."""
    run.say(f"{study.name}: {len(study.parts)} clients, {len(study.data)} rows")
    scalars = study.data.rows.scalars
    scale = federated_scale(federation, scalars.x.shape[1], scalars.z.shape[1])
    found = ImageFindings(study)
    before = federation.exchanges
    learnt = _learn_all(federation, study, scale, config.images, run)
    estimate, direct = _closed_form(federation, study, scale, learnt, config)
    found.rounds["features"] = federation.exchanges - before + 2
    columns = learnt.test_columns(study.data, scale)
    found.predictions["features"] = _in_units(columns @ estimate.theta, scale)
    found.baselines["direct"] = _in_units(columns @ direct.theta, scale)
    if "x" in learnt.networks:  # its first output predicts y
        found.baselines["direct_network"] = _in_units(columns[:, 1], scale)
    for name, settings in config.games.items():
        before = federation.exchanges
        try:
            found.games[name] = _play(federation, study, scale, settings, run, name, found)
        except DivergedError as error:
            run.warn(f"{study.name}: {name}: {error}")
            found.diverged[name] = str(error)
            continue
        found.rounds[name] = federation.exchanges - before
        found.predictions[name] = _game_prediction(study, scale, settings, found.games[name].theta)
    return found


@dataclass
class Learnt:
    """Networks that predict views from images, and how to use them."""

    networks: dict[str, ConvNetwork] = field(default_factory=dict)
    flats: dict[str, Floats] = field(default_factory=dict)

    def arrays(self) -> dict[str, Floats]:
        """Arrays of a message."""
        return {f"flat_{role}": flat for role, flat in self.flats.items()}

    def settings(self, scale: Scale) -> dict[str, Any]:
        """Settings of a message."""
        return {
            "scale": scale.to_json(),
            "networks": {role: n.describe() for role, n in self.networks.items()},
            "splines_x": SPLINES_X,
            "splines_z": SPLINES_Z,
        }

    def test_columns(self, data: ImageData, scale: Scale) -> Floats:
        """The columns A of the test treatments, (m, k)."""
        standardised = data.test_x
        if scale.treatments:
            standardised = (np.asarray(data.test_x, float) - scale.mean[1]) / scale.sd[1]
        return treatment_columns(
            data.test_x, np.asarray(standardised, float), self.arrays(), self.settings(scale)
        )


def _learn_all(
    federation: Federation, study: ImageStudy, scale: Scale, settings: ImageSettings, run: Run
) -> Learnt:
    learnt = Learnt()
    for role in ROLES[study.data.which]:
        other = "z" if role == "x" else "x"
        view = _view(federation, study, scale, other)
        shape = getattr(study.data, role).shape[1:]
        network = ConvNetwork(shape, 1 + view.size, settings.hidden)
        learnt.networks[role] = network
        learnt.flats[role] = _learn(federation, study, scale, role, network, view, settings, run)
    return learnt


def _view(federation: Federation, study: ImageStudy, scale: Scale, variable: str) -> View:
    """The view of one variable, from sums (one round)."""
    settings = {"scale": scale.to_json(), "variable": variable}
    sums = total(_ask(federation, "view_moments", {}, settings))
    image = getattr(study.data, variable).dtype == np.uint8
    return View.of_moments(
        "components" if image else "splines", float(sums["n"][0]), sums["total"], sums["squares"]
    )


def _ask(
    federation: Federation, statistic: str, arrays: Arrays, settings: Mapping[str, Any]
) -> list[dict[str, Array]]:
    return federation.ask(statistic, arrays, settings, message_type="query.images")


def _learn(
    federation: Federation,
    study: ImageStudy,
    scale: Scale,
    role: str,
    network: ConvNetwork,
    view: View,
    settings: ImageSettings,
    run: Run,
) -> Floats:
    """Federated averaging of a network that predicts y and a view (McMahan et al., 2017)."""
    store = RunStore(run, f"{study.name}.view-{role}")
    seed = int(stream(study.seed, "network", role).integers(2**31))
    start, flat = 0, network.init(seed).numpy().astype(np.float64)
    kept = store.load()
    if kept is not None:
        start, flat = kept[0], kept[1]["flat"]
    common = {
        "role": role, "network": network.describe(), "view": view.to_json(),
        "scale": scale.to_json(), "epochs": settings.epochs, "batch": settings.batch,
        "weight_decay": settings.weight_decay, "seed": study.seed,
    }  # fmt: skip
    for number in range(start + 1, settings.rounds + 1):
        lr = settings.lr * 0.5 * (1 + math.cos(math.pi * (number - 1) / settings.rounds))
        content = pack({"flat": flat}, {**common, "lr": lr, "round": number})
        contents = {m.partition: content for m in federation.members}
        replies = federation.exchange("train.views", contents, f"view of {role} {number}")
        flat = _averaged(number, flat, [replies[p] for p in sorted(replies)])
        run.say(f"{study.name}: learning from images of {role}, round {number}")
        if number % CHECKPOINT_EVERY == 0 or number == settings.rounds:
            store.save(number, {"flat": flat}, {})
    return flat


def _averaged(number: int, flat: Floats, replies: list[Message]) -> Floats:
    """The clients' parameters, weighted by rows."""
    strategy = FedGDA(ServerStep(), flat, {})
    strategy.aggregate_train(number, replies)
    return strategy.flat


def _closed_form(
    federation: Federation, study: ImageStudy, scale: Scale, learnt: Learnt, config: Config
) -> tuple[Estimate, Estimate]:
    """Two-step penalised GMM and direct regression on the learnt columns (two rounds)."""
    arrays, settings = learnt.arrays(), learnt.settings(scale)
    sums = total(_ask(federation, "image_moments", arrays, settings))
    if "x" in learnt.networks:
        penalty = ridge(sums, config.images.ridge)
    else:
        penalty = sieve.curve_penalty(SPLINES_X, 0, config.curve.smoothing)
    first = sieve.sieve_gmm(sums, penalty)
    scores = _ask(federation, "image_scores", {**arrays, "theta": first.theta}, settings)
    second = sieve.sieve_gmm(sums, penalty, total(scores))
    return second, sieve.penalised_regression(sums, DIRECT_SHARE * penalty)


def ridge(sums: Arrays, weight: float) -> Floats:
    """Penalty on the coefficients of all columns but the constant, by their variances, (k, k)."""
    n = float(sums["n"][0])
    variances = np.diag(sums["aa"]) / n - (sums["aa"][0] / n) ** 2
    variances[0] = 0.0
    return np.diag(weight * np.maximum(variances, 0.0))


def _play(
    federation: Federation,
    study: ImageStudy,
    scale: Scale,
    settings: GameSettings,
    run: Run,
    name: str,
    found: ImageFindings,
) -> Trained:
    key = f"{study.name}.{name}"

    def evaluate(theta: Floats) -> dict[str, float]:
        return {"mse": found.error(_game_prediction(study, scale, settings, theta))}

    def report(number: int, metrics: dict[str, float]) -> None:
        run.log(number, **{f"{key}/{k}": v for k, v in metrics.items()})
        values = " ".join(f"{k} {v:.4g}" for k, v in metrics.items())
        run.say(f"{key}: round {number} of {settings.rounds}, {values}")

    return train(
        federation, scale, players(study.data, scale, settings), settings, study.seed, evaluate,
        report, RunStore(run, key),
    )  # fmt: skip


def players(data: ImageData, scale: Scale, settings: GameSettings) -> Players:
    """A convolutional network for what is an image, a perceptron for what is a number."""

    def one(shown: Floats | Pixels, numbers: int, hidden: tuple[int, ...]) -> Player:
        if shown.dtype == np.uint8:
            return ConvNetwork((shown.shape[1], shown.shape[2], shown.shape[3]))
        return Network((numbers, *hidden, 1))

    return Players(
        one(data.x, scale.treatments, settings.hidden_g),
        one(data.z, scale.instruments, settings.hidden_f),
    )


def _game_prediction(
    study: ImageStudy, scale: Scale, settings: GameSettings, theta: Floats
) -> Floats:
    g = players(study.data, scale, settings).g
    shown = study.data.test_x
    if shown.dtype != np.uint8:
        shown = (np.asarray(shown, float) - scale.mean[1]) / scale.sd[1]
    with torch.no_grad():
        outputs = g(torch.from_numpy(np.array(theta)), torch.from_numpy(np.asarray(shown)))
    return _in_units(outputs.numpy(), scale)


def _in_units(standardised: Floats, scale: Scale) -> Floats:
    return np.asarray(standardised * scale.sd[0] + scale.mean[0])
