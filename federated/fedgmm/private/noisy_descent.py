"""DP-2S-GD: linear instrumental variables by two noisy gradient descents, a private comparator.

Liang, Jin, Balasubramanian and Lai (2025), Differentially Private Two-Stage Gradient Descent for
Instrumental Variable Regression, arXiv 2509.22794. Every iteration moves the first stage
Theta (x on b) and the second stage beta (y on the fitted columns) along their average gradients:

    Theta <- Theta - eta_1 (1/n sum_i clip(b_i (b_i' Theta - x_i'), C_1) + noise)
    beta  <- beta  - eta_2 (1/n sum_i clip(f_i (f_i' beta - y_i), C_2) + noise)

where f = [w, Theta' b], b = [w, z], and w are the columns that are in both stages (the constant and
the controls, their own first stage). A replaced row moves an average of clipped gradients by at
most 2 C / n, so T iterations with noise sigma spend rho = T (2 C / n)^2 / (2 sigma^2) a stage. The
number of rows n is public, and all rows are used in every iteration.
"""

import math
from dataclasses import dataclass

import numpy as np

from cluster.errors import UsageError
from federated.fedgmm.design import Array
from federated.fedgmm.private.design import PrivateDesign
from federated.fedgmm.rows import Rows
from federated.privacy import Ledger, Release, epsilon_of_rho

ITERATIONS = 100


@dataclass(frozen=True)
class DescentSettings:
    """Steps, clipping and the split of the budget.

    Attributes
    ----------
    iterations : T.
    steps : eta_1 and eta_2.
    clips : C_1 and C_2, the largest length of a row's gradient; infinite for no clipping.
    first_share : share of rho that the first stage gets.

    Raises
    ------
    UsageError
        For no iterations, steps or clips that are not positive, or a share outside (0, 1).
    """

    iterations: int
    steps: tuple[float, float]
    clips: tuple[float, float]
    first_share: float = 0.5

    def __post_init__(self) -> None:
        """Refuse settings that cannot descend."""
        if self.iterations < 1:
            raise UsageError(f"Noisy descent needs an iteration, got {self.iterations}.")
        if not (min(self.steps) > 0 and min(self.clips) > 0):
            raise UsageError(
                f"Noisy descent needs positive steps and clips, got {self.steps} and {self.clips}."
            )
        if not 0 < self.first_share < 1:
            raise UsageError(
                f"The first stage's share must lie between 0 and 1, got {self.first_share}."
            )


def default_settings(
    treatments: int, instruments: int, controls: int, iterations: int = ITERATIONS
) -> DescentSettings:
    """Settings for columns in [-1, 1] and a constant, from their numbers alone.

    A column that is uniform on its bounds has the mean square 1/3. That makes 1 + (q + c) / 3 the
    trace of b's second moments, a bound on the curvature of the first stage, whose inverse is the
    step, and likewise for the second. Gradients are clipped at the length of a typical row times a
    residual of the same size as a column, which is some times the residual after the fit.
    """
    first, second = 1 + (instruments + controls) / 3, 1 + (treatments + controls) / 3
    return DescentSettings(
        iterations,
        (1 / first, 1 / second),
        (math.sqrt(first * treatments / 3), math.sqrt(second / 3)),
    )


@dataclass(frozen=True)
class Descent:
    """Where the descent went, and what it spent.

    Attributes
    ----------
    theta : (m, p) first stage of the treatments on b.
    path : (T + 1, k) beta before and after every iteration, in the order [w, x].
    releases : all iterations of each stage as one release, sensitivity sqrt(T) 2 C / n.
    """

    theta: Array
    path: Array
    releases: tuple[Release, Release]

    @property
    def beta(self) -> Array:
        """The last coefficients, (k,), those of w first and then of x."""
        return np.asarray(self.path[-1])

    @property
    def rho(self) -> float:
        """What was spent, rho_1 + rho_2."""
        return self.releases[0].rho + self.releases[1].rho

    def ledger(self, delta: float) -> Ledger:
        """The same as epsilon at `delta`, by zCDP as in the paper; its `exact_epsilon` is less."""
        return Ledger(epsilon_of_rho(self.rho, delta), delta, self.releases)


def noisy_descent(
    y: Array,
    x: Array,
    z: Array,
    w: Array,
    rho: float,
    settings: DescentSettings,
    rng: np.random.Generator,
) -> Descent:
    """Run the descent from zero.

    Parameters
    ----------
    y, x, z, w : outcome (n,), treatments (n, p), excluded instruments (n, q) and columns that are
        in both stages (n, c), the constant among them if there is to be one.
    rho : what both stages may spend together; infinite for no noise.
    """
    if not rho > 0:
        raise UsageError(f"The zCDP parameter rho must be positive, got {rho}.")
    share = settings.first_share
    first = _calibrated("first stage", settings.clips[0], share * rho, settings, len(y))
    second = _calibrated("second stage", settings.clips[1], (1 - share) * rho, settings, len(y))
    b = np.hstack([w, z])
    theta, beta = np.zeros((b.shape[1], x.shape[1])), np.zeros(w.shape[1] + x.shape[1])
    path = [beta]
    for _ in range(settings.iterations):
        gradient = first_gradient(theta, x, b, settings.clips[0]) / len(y)
        theta = theta - settings.steps[0] * (gradient + first.sigma * rng.normal(size=theta.shape))
        slope = second_gradient(beta, theta, y, b, w, settings.clips[1]) / len(y)
        beta = beta - settings.steps[1] * (slope + second.sigma * rng.normal(size=beta.shape))
        path.append(beta)
    return Descent(theta, np.array(path), (_all(first, settings), _all(second, settings)))


def first_gradient(theta: Array, x: Array, b: Array, clip: float) -> Array:
    """Sum over rows of the first stage's clipped gradients, (m, p); it adds up over clients.

    A row's gradient b r' has the length |b| |r|, so it is clipped without being formed.
    """
    residual = b @ theta - x
    length = np.linalg.norm(b, axis=1) * np.linalg.norm(residual, axis=1)
    return np.asarray(b.T @ (residual * _shrink(length, clip)[:, None]))


def second_gradient(beta: Array, theta: Array, y: Array, b: Array, w: Array, clip: float) -> Array:
    """Sum over rows of the second stage's clipped gradients, (k,)."""
    fitted = np.hstack([w, b @ theta])
    residual = fitted @ beta - y
    length = np.linalg.norm(fitted, axis=1) * np.abs(residual)
    return np.asarray(fitted.T @ (residual * _shrink(length, clip)))


def private_descent(
    rows: Rows,
    design: PrivateDesign,
    rho: float,
    rng: np.random.Generator,
    settings: DescentSettings | None = None,
) -> tuple[Array, Descent]:
    """The treatments' coefficients in the units of the data, (p,), from rows with public bounds.

    The same bounded columns as those of `private.PrivateDesign` of kind "linear"; default settings
    come from the numbers of its columns. Raises UsageError for a design of another kind.
    """
    if design.kind != "linear":
        raise UsageError(f"Noisy descent fits a linear model, not a {design.kind}.")
    p, q, c = len(design.x), len(design.z), len(design.w)
    v = design.row_vectors(rows)
    included = np.r_[1, design.dimension - c : design.dimension]
    found = noisy_descent(
        v[:, 0], v[:, 2 : 2 + p], v[:, 2 + p : 2 + p + q], v[:, included], rho,
        settings or default_settings(p, q, c), rng,
    )  # fmt: skip
    widths = np.array([high - low for low, high in design.x])
    return found.beta[1 + c :] * (design.y[1] - design.y[0]) / widths, found


def _calibrated(name: str, clip: float, rho: float, settings: DescentSettings, n: int) -> Release:
    """One iteration's release that spends rho / T."""
    if math.isinf(rho):
        return Release(name, 2 * clip / n, 0.0)
    if math.isinf(clip):
        raise UsageError("Noisy descent without clipping has no finite sensitivity: set clips.")
    sensitivity = 2 * clip / n
    return Release(name, sensitivity, sensitivity * math.sqrt(settings.iterations / (2 * rho)))


def _all(one: Release, settings: DescentSettings) -> Release:
    return Release(one.name, one.sensitivity * math.sqrt(settings.iterations), one.sigma)


def _shrink(length: Array, clip: float) -> Array:
    return np.asarray(np.minimum(1.0, clip / np.maximum(length, 1e-300)))
