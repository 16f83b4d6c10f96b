"""Curves and coefficients from a noisy second-moment matrix whose noise level is known.

The release S = V'V + noise of `private` contains the moments of B (instruments), A (structural)
and y. With theta the coefficients of y = A theta + eps, the moment B'y - B'A theta has the variance

    Omega = Var(eps) B'B + s^2 (1 + |theta|^2) I,

the sampling part and the noise's, s being the standard deviation of an off-diagonal entry. The
inverse of Omega is the optimal GMM weight (Hansen, 1982); for large noise it is the ridge on the
instruments' Gram matrix that keeps it from inverting noise. Weights and theta are found in turn. A
curve has a penalty on second differences of its coefficients (Eilers and Marx, 1996) in the units
of 1 / Omega: a fixed prior, so that more noise means more smoothing without a look at the data. The
coefficients of a linear model have one too. With it, theta has the covariance of the posterior,
that of the moments carried through plus what the prior leaves open.

Noise in B'A adds about s^2 tr(1 / Omega) I to the normal equations. It is left there as a ridge
towards the middle of y's bounds: taking it out halves the bias and doubles the variance.
"""

from dataclasses import dataclass

import numpy as np

from federated.fedgmm import bases
from federated.fedgmm.design import Array
from federated.fedgmm.linear import Coefficient, Estimate
from federated.fedgmm.private.design import PrivateDesign, scaled, splines, svec, unsvec

SMOOTHING = 100.0
"""Weight of a curve's roughness, chosen on seeds 0 to 2 of the simulations."""

PRIOR_SD = 1.0
"""Width of the prior of a linear model's coefficients, in scaled units.

At 1, a treatment that moves over half its range moves y over half of its own. Bounds are wide, so
real effects are smaller, and data that say anything override it; where noise has drowned the
instruments, it keeps the answer from being anything at all.
"""

SWEEPS = 3
"""Times that the weights are renewed from the coefficients; more changes nothing."""

RELATIVE_RIDGE = 1e-6
"""Ridge on the instruments' Gram matrix in units of its mean diagonal, where there is no noise."""

LEAST_VARIANCE = 1e-4
"""Floor of the residual variance, in units of y's half-range squared."""

DRAWS = 100
"""Draws of the noise behind the standard errors."""


@dataclass(frozen=True)
class PrivateCurve:
    """A curve g with its coefficients in scaled units.

    `level` holds the controls at their means.
    """

    design: PrivateDesign
    estimate: Estimate
    level: float

    def predict(self, x: Array) -> tuple[Array, Array]:
        """g and its standard error at x (n,), both in the units of y.

        Outside the bounds of x the curve is constant. The standard error counts sampling, privacy
        noise and the prior's width, as bands of smoothing splines do (Wahba, 1983).
        """
        size = self.design.size
        columns = splines(scaled(x, self.design.x[0]), size)
        middle, half = _middle_half(self.design.y)
        covariance = self.estimate.covariance[:size, :size]
        variance = np.einsum("ij,jk,ik->i", columns, covariance, columns)
        g = columns @ self.estimate.theta[:size] + self.level
        return g * half + middle, np.sqrt(np.maximum(variance, 0.0)) * half


@dataclass(frozen=True)
class PrivateLinear:
    """A linear model's coefficients in scaled units, [1, x, w]."""

    design: PrivateDesign
    estimate: Estimate

    def coefficients(self) -> list[Coefficient]:
        """The treatments' coefficients in the units of the data, with standard errors."""
        _, half = _middle_half(self.design.y)
        se = self.estimate.se()
        unit = [half / _middle_half(bounds)[1] for bounds in self.design.x]
        return [
            Coefficient(float(self.estimate.theta[1 + i] * u), float(se[1 + i] * u))
            for i, u in enumerate(unit)
        ]


def private_curve(
    S: Array,
    noise_sd: float,
    design: PrivateDesign,
    n: int,
    rng: np.random.Generator | None = None,
    smoothing: float = SMOOTHING,
) -> PrivateCurve:
    """Penalised GMM for a curve from noisy second moments.

    Parameters
    ----------
    S : (d, d) noisy sum of v v' of `design`.
    noise_sd : standard deviation of the noise on each entry of `svec(S)`; 0 for none.
    n : number of rows, public.
    rng : for the standard errors' draws of the noise; without it they count sampling alone.
    """
    penalty = np.zeros((len(design.a), len(design.a)))
    penalty[: design.size, : design.size] = smoothing * bases.roughness(design.size)
    moments = cleaned(S, design)
    estimate = _estimate(moments, noise_sd, design, n, penalty, rng)
    controls = design.a[design.size :]
    means = moments[np.ix_(controls, np.arange(1, 1 + design.size))].sum(axis=1) / n
    return PrivateCurve(design, estimate, float(means @ estimate.theta[design.size :]))


def private_linear(
    S: Array,
    noise_sd: float,
    design: PrivateDesign,
    n: int,
    rng: np.random.Generator | None = None,
) -> PrivateLinear:
    """GMM for a linear model from noisy second moments; parameters as in `private_curve`.

    Coefficients in scaled units have a normal prior around 0, `PRIOR_SD` wide; without noise they
    have none and are those of 2SLS.
    """
    penalty = np.eye(len(design.a)) * (PRIOR_SD**-2 if noise_sd > 0 else 0.0)
    return PrivateLinear(design, _estimate(cleaned(S, design), noise_sd, design, n, penalty, rng))


def cleaned(S: Array, design: PrivateDesign) -> Array:
    """The nearest positive semi-definite matrix in which redundant columns are redundant.

    True second moments have both properties, so this only takes noise away.
    """
    basis, _ = np.linalg.qr(design.redundant())
    keep = np.eye(len(S)) - basis @ basis.T
    values, vectors = np.linalg.eigh(keep @ S @ keep)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


@dataclass(frozen=True)
class _Fit:
    """Coefficients with what their sampling variance needs."""

    theta: Array
    variance: float
    action: Array
    """Maps the moment B'y to theta, (k, m)."""

    prior: Array
    """What the prior adds to theta's covariance, (k, k)."""


def _estimate(
    moments: Array,
    noise_sd: float,
    design: PrivateDesign,
    n: int,
    penalty: Array,
    rng: np.random.Generator | None,
) -> Estimate:
    fit = _fit(moments, noise_sd, design, n, penalty)
    gram = moments[np.ix_(design.b, design.b)]
    covariance = fit.variance * fit.action @ gram @ fit.action.T + fit.prior
    if rng is not None and noise_sd > 0:
        covariance = covariance + _noise_covariance(moments, noise_sd, design, n, penalty, rng)
    return Estimate(fit.theta, covariance, n)


def _fit(moments: Array, noise_sd: float, design: PrivateDesign, n: int, penalty: Array) -> _Fit:
    a, b = design.a, design.b
    gram, cross, target = moments[np.ix_(b, b)], moments[np.ix_(b, a)], moments[b, 0]
    ridge = np.eye(len(b)) * np.trace(gram) / len(b) * RELATIVE_RIDGE
    outcome = np.r_[0, a]
    theta: Array = np.zeros(len(a))
    variance = float(max(moments[0, 0] / n, LEAST_VARIANCE))
    action: Array = np.zeros((len(a), len(b)))
    bread: Array = np.eye(len(a))
    for _ in range(SWEEPS):
        noise = noise_sd**2 / 2 * (1 + theta @ theta) * np.eye(len(b))
        weights = np.linalg.inv(variance * (gram + ridge) + noise)
        bread = cross.T @ weights @ cross + penalty
        bread[np.diag_indices_from(bread)] += 1e-9 * np.trace(bread) / len(bread)
        action = np.asarray(np.linalg.solve(bread, cross.T @ weights))
        theta = np.asarray(action @ target)
        residual = np.r_[1.0, -theta]
        explained = residual @ moments[np.ix_(outcome, outcome)] @ residual
        variance = float(np.clip(explained / n, LEAST_VARIANCE, 1.0))
    return _Fit(theta, variance, action, np.linalg.solve(bread, np.linalg.solve(bread, penalty).T))


def _noise_covariance(
    moments: Array,
    noise_sd: float,
    design: PrivateDesign,
    n: int,
    penalty: Array,
    rng: np.random.Generator,
) -> Array:
    """Covariance of the coefficients over fresh draws of the noise, a parametric bootstrap.

    Its noise comes on top of that already in `moments`; both are cleaned the same way.
    """
    centre, thetas = svec(moments), []
    for _ in range(DRAWS):
        noisy = unsvec(centre + rng.normal(0.0, noise_sd, len(centre)))
        thetas.append(_fit(cleaned(noisy, design), noise_sd, design, n, penalty).theta)
    return np.atleast_2d(np.cov(np.array(thetas), rowvar=False))


def _middle_half(bounds: tuple[float, float]) -> tuple[float, float]:
    return bounds[0] / 2 + bounds[1] / 2, bounds[1] / 2 - bounds[0] / 2
