"""Estimators as plain Python objects: arrays in, estimates out, no Ray and no files.

They run the server and the clients of the recipe in this process. `client` says who holds each
row; it changes nothing in `LinearIV` and `SieveIV`, whose sums do not depend on it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid
from numpy.typing import ArrayLike, NDArray

from cluster.errors import UsageError
from federated.engine import in_process
from federated.federation import Federation
from federated.fedgmm import estimators, linear
from federated.fedgmm.analyse import network_curve
from federated.fedgmm.client_app import make_client_app
from federated.fedgmm.config import CurveSettings, GameSettings
from federated.fedgmm.design import Design, Scale
from federated.fedgmm.linear import Coefficient
from federated.fedgmm.rows import Rows
from federated.fedgmm.train import players_of, train
from federated.partition import by_column

Floats = NDArray[np.float64]
T = TypeVar("T")


class LinearIV:
    """Federated two-stage least squares and two-step GMM for y = x beta + w gamma + eps.

    Attributes (after `fit`)
    ------------------------
    coefficients : one `Coefficient(value, se)` a treatment, 2SLS.
    gmm : the same by two-step GMM with robust standard errors.
    first_stage_f : F of the excluded instruments, one a treatment.
    j, j_p : Hansen's J and its p-value; None if just identified.
    """

    coefficients: list[Coefficient]
    gmm: list[Coefficient]
    first_stage_f: list[float]
    j: float | None
    j_p: float | None

    def fit(
        self,
        z: ArrayLike,
        x: ArrayLike,
        y: ArrayLike,
        *,
        w: ArrayLike | None = None,
        client: ArrayLike | None = None,
    ) -> Self:
        """Estimate from instruments z (n, q), treatments x (n, p), outcome y (n,), controls w."""
        rows = as_rows(z, x, y, w)

        def server(federation: Federation) -> None:
            p, q = rows.x.shape[1], rows.z.shape[1]
            scale = estimators.federated_scale(federation, p, q)
            sums = estimators.moment_sums(federation, Design("linear", scale))
            unit = scale.sd[0] / scale.sd[1 : 1 + p]
            two_step = estimators.two_step(federation, sums)
            self.coefficients = linear.coefficients(linear.two_stage(sums.total), unit)
            self.gmm = linear.coefficients(two_step, unit)
            self.first_stage_f = linear.first_stage_f(sums.total, p, q)
            self.j, self.j_p = two_step.j, two_step.j_p

        _with_clients(rows, client, server)
        return self


class SieveIV:
    """Federated penalised sieve GMM for a curve: y = g(x) + w gamma + eps.

    Parameters
    ----------
    splines, index_splines, smoothing : as in the recipe's `curve` settings.
    """

    curve: estimators.Curve

    def __init__(self, splines: int = 25, index_splines: int = 12, smoothing: float = 2e-4) -> None:
        self.settings = CurveSettings(
            splines=splines, index_splines=index_splines, smoothing=smoothing
        )

    def fit(
        self,
        z: ArrayLike,
        x: ArrayLike,
        y: ArrayLike,
        *,
        w: ArrayLike | None = None,
        client: ArrayLike | None = None,
    ) -> Self:
        """Estimate g from instruments z (n, q), one treatment x (n,), outcome y (n,)."""
        rows = as_rows(z, x, y, w)
        _one_treatment(rows)

        def server(federation: Federation) -> None:
            s = self.settings
            scale = estimators.federated_scale(federation, 1, rows.z.shape[1])
            stage = estimators.first_stage(federation, scale, s.splines, s.index_splines)
            sums = estimators.moment_sums(federation, stage.design)
            self.curve = estimators.sieve_curve(federation, stage, sums, s.smoothing)

        _with_clients(rows, client, server)
        return self

    def predict(self, x: ArrayLike) -> tuple[Floats, Floats]:
        """g and its standard error at treatments x (m,)."""
        return self.curve.predict(np.asarray(x, dtype=np.float64))


class DeepGMM:
    """FedDeepGMM (arXiv 2505.21012): g and critic are networks, trained by FedGDA.

    Parameters
    ----------
    seed : of the initial networks and the minibatches.
    options : fields of the recipe's `games` settings, such as rounds=150, batch=256, lr_g=0.01.
        With one client it is the centralised DeepGMM.
    """

    def __init__(self, seed: int = 0, **options: Any) -> None:
        self.seed = seed
        self.settings = GameSettings(**options)

    def fit(
        self,
        z: ArrayLike,
        x: ArrayLike,
        y: ArrayLike,
        *,
        w: ArrayLike | None = None,
        client: ArrayLike | None = None,
    ) -> Self:
        """Train on instruments z (n, q), one treatment x (n,), outcome y (n,), controls w."""
        rows = as_rows(z, x, y, w)
        _one_treatment(rows)
        s = self.settings

        def server(federation: Federation) -> None:
            scale = estimators.federated_scale(federation, 1, rows.z.shape[1])
            trained = train(
                federation, scale, players_of(scale, s), s, self.seed, lambda _: {},
                lambda *_: None, NoStore(),
            )  # fmt: skip
            self.history = trained.history
            self._keep(trained.theta, scale)

        _with_clients(rows, client, server)
        return self

    def predict(self, x: ArrayLike) -> Floats:
        """g at treatments x (m,), with controls at their means."""
        return self._predict(np.asarray(x, dtype=np.float64))

    def _keep(self, theta: Floats, scale: Scale) -> None:
        self.theta = theta
        self._predict = network_curve(theta, scale, self.settings.hidden_g)


@dataclass(frozen=True)
class NoStore:
    """Keeps no checkpoints."""

    def save(self, step: int, arrays: Any, state: Any) -> None:
        """Forget."""

    def load(self) -> None:
        """Have nothing."""


@dataclass(frozen=True)
class HeldRows:
    """Rows of each client, in memory."""

    rows: tuple[Rows, ...]

    def __call__(self, context: Context, _: str) -> tuple[Rows, str]:
        """Rows and label of the client that a node stands for."""
        partition = int(context.node_config["partition-id"])
        return self.rows[partition], f"client {partition}"


def as_rows(z: ArrayLike, x: ArrayLike, y: ArrayLike, w: ArrayLike | None) -> Rows:
    """Check arrays and make rows of them; raises UsageError for misfitting shapes and NaN."""
    outcome = np.asarray(y, dtype=np.float64)
    n = len(outcome)
    blocks = {
        "z": _columns(z),
        "x": _columns(x),
        "w": _columns(np.empty((n, 0)) if w is None else w),
    }
    for name, block in blocks.items():
        if len(block) != n:
            raise UsageError(f"{name} has {len(block)} rows, y has {n}; they must match")
    for name, block in {**blocks, "y": outcome}.items():
        bad = np.argwhere(~np.isfinite(block))
        if len(bad):
            raise UsageError(f"{name} has NaN or infinite values, the first in row {bad[0][0]}")
    return Rows(outcome, blocks["x"], blocks["z"], blocks["w"])


def _columns(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return array[:, None] if array.ndim == 1 else array


def _one_treatment(rows: Rows) -> None:
    if rows.x.shape[1] != 1:
        raise UsageError(f"a curve takes one treatment, x has {rows.x.shape[1]} columns")


def _with_clients(rows: Rows, client: ArrayLike | None, server: Callable[[Federation], T]) -> T:
    labels = np.zeros(len(rows), dtype=str) if client is None else np.asarray(client).astype(str)
    if len(labels) != len(rows):
        raise UsageError(f"client has {len(labels)} entries, y has {len(rows)}; they must match")
    parts = by_column(labels)
    app = make_client_app(HeldRows(tuple(rows.take(part) for part in parts)))

    def main(grid: Grid) -> T:
        return server(Federation.gather(grid, len(parts)))

    return in_process(main, app, len(parts))
