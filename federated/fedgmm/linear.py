"""Linear instrumental-variable estimators from summed moments: OLS, 2SLS, two-step GMM.

All take the sums of `statistics.moments`; none sees a row. Formulas: Wooldridge, Econometric
Analysis of Cross Section and Panel Data (2010), chapters 5 and 8; Hansen (1982) for the J test;
Anderson and Rubin (1949) for intervals that survive weak instruments.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from federated.fedgmm.design import Array, Arrays

Z_95 = 1.959964

RELATIVE_ZERO = 1e-10
"""Eigenvalues below this share of the largest count as zero: collinear or empty columns."""

SPLINE_ZERO = 1e-6
"""The same for spline columns. Outer splines that few rows reach are nearly collinear; inverting
such directions would amplify rounding until results depend on the order of the sums."""


@dataclass(frozen=True)
class Estimate:
    """Coefficients in standardised units with their covariance.

    Attributes
    ----------
    theta : (k,) coefficients.
    covariance : (k, k) of theta.
    n : rows behind it.
    j, j_df, j_p : Hansen's statistic of over-identification, its degrees of freedom, its p-value;
        None where there is nothing to test.
    """

    theta: Array
    covariance: Array
    n: int
    j: float | None = None
    j_df: float | None = None
    j_p: float | None = None

    def se(self) -> Array:
        """Standard errors, (k,)."""
        return np.asarray(np.sqrt(np.maximum(np.diag(self.covariance), 0.0)))


@dataclass(frozen=True)
class Coefficient:
    """One coefficient with its standard error, in the data's units."""

    value: float
    se: float

    def interval(self) -> tuple[float, float]:
        """95 % normal interval."""
        return self.value - Z_95 * self.se, self.value + Z_95 * self.se


def coefficients(estimate: Estimate, unit: Array) -> list[Coefficient]:
    """The treatments' coefficients of a linear design in the data's units.

    `unit` is sd(y) / sd(x) of each treatment, (p,).
    """
    se = estimate.se()
    return [
        Coefficient(float(estimate.theta[1 + i] * u), float(se[1 + i] * u))
        for i, u in enumerate(unit)
    ]


def inverse(matrix: Array, zero: float = RELATIVE_ZERO) -> Array:
    """Inverse of a symmetric positive semi-definite matrix on its range.

    Scaled to a unit diagonal first, so that the cut-off means collinearity and not units.
    """
    scale = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    scale[scale == 0.0] = 1.0
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    keep = values > zero * values[-1]
    core = (vectors[:, keep] / values[keep]) @ vectors[:, keep].T
    return np.asarray(core / np.outer(scale, scale))


def rank(matrix: Array, zero: float = RELATIVE_ZERO) -> int:
    """Numerical rank of a symmetric positive semi-definite matrix, as `inverse` sees it."""
    scale = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    scale[scale == 0.0] = 1.0
    values = np.linalg.eigvalsh(matrix / np.outer(scale, scale))
    return int(np.sum(values > zero * values[-1]))


def ols(sums: Arrays) -> Estimate:
    """Ordinary least squares of y on A: ignores endogeneity."""
    bread = inverse(sums["aa"])
    return _classical(sums, bread @ sums["ay"], bread)


def two_stage(sums: Arrays) -> Estimate:
    """Two-stage least squares with classical standard errors (n - k degrees of freedom)."""
    projected = sums["ba"].T @ inverse(sums["bb"])
    bread = inverse(projected @ sums["ba"])
    return _classical(sums, bread @ (projected @ sums["by"]), bread)


def gmm(sums: Arrays, omega: Arrays) -> Estimate:
    """Two-step GMM with the weights of a first estimate, robust standard errors and J test.

    Parameters
    ----------
    sums : of `statistics.moments`.
    omega : of `statistics.score_covariance` at the first-step coefficients.
    """
    n = float(sums["n"][0])
    weights = inverse(omega["omega"] / n)
    cross = sums["ba"] / n
    bread = inverse(cross.T @ weights @ cross)
    theta = bread @ (cross.T @ weights @ (sums["by"] / n))
    mean_moment = (sums["by"] - sums["ba"] @ theta) / n
    j = float(n * mean_moment @ weights @ mean_moment)
    return over_identified(theta, bread / n, int(n), j, rank(omega["omega"]) - rank(bread))


def over_identified(theta: Array, covariance: Array, n: int, j: float, df: float) -> Estimate:
    """An estimate with its J test, or without one where the moments just identify it."""
    if df < 0.5:
        return Estimate(theta, covariance, n)
    return Estimate(theta, covariance, n, j, df, float(stats.chi2.sf(j, df)))


def sandwich(sums: Arrays, omega: Arrays, theta: Array) -> Array:
    """Heteroskedasticity-robust covariance of 2SLS from the score covariance at `theta`."""
    projected = sums["ba"].T @ inverse(sums["bb"])
    bread = inverse(projected @ sums["ba"])
    return np.asarray(bread @ projected @ omega["omega"] @ projected.T @ bread)


def first_stage_f(sums: Arrays, treatments: int, instruments: int) -> list[float]:
    """F statistic of the excluded instruments in each treatment's first stage.

    The columns are those of a linear design: A = [1, x, w], B = [1, z, w]. A value below about 10
    marks weak instruments (Staiger and Stock, 1997).
    """
    bb, n = sums["bb"], float(sums["n"][0])
    included = np.r_[0, 1 + instruments : len(bb)]
    found = []
    for t in range(1, 1 + treatments):
        xx, bx = sums["aa"][t, t], sums["ba"][:, t]
        short = xx - bx[included] @ inverse(bb[np.ix_(included, included)]) @ bx[included]
        full = max(xx - bx @ inverse(bb) @ bx, np.finfo(float).tiny)
        found.append(float((short - full) / instruments / (full / (n - rank(bb)))))
    return found


def anderson_rubin(sums: Arrays, instruments: int, level: float = 0.95) -> tuple[float, float]:
    """Interval for one treatment's coefficient whose coverage does not need strong instruments.

    Inverts the F test of the excluded instruments in a regression of y - beta x on B, in
    standardised units. Returns (-inf, inf) where the set is unbounded, as for instruments that may
    be irrelevant, and NaNs where it is empty: every value is rejected, so the instruments are not
    all valid.
    """
    bb, n = sums["bb"], float(sums["n"][0])
    included = np.r_[0, 1 + instruments : len(bb)]
    by, bx = sums["by"], sums["ba"][:, 1]
    both = np.column_stack([by, bx])
    gram = np.array([[sums["yy"][0], sums["ay"][1]], [sums["ay"][1], sums["aa"][1, 1]]])
    sub = inverse(bb[np.ix_(included, included)])
    full = gram - both.T @ inverse(bb) @ both
    explained = gram - both[included].T @ sub @ both[included] - full
    df = n - rank(bb)
    bound = float(stats.f.ppf(level, instruments, df)) * instruments / df
    m = explained - bound * full  # the set: m00 - 2 beta m01 + beta^2 m11 <= 0
    return _quadratic_set(m[1, 1], -2 * m[0, 1], m[0, 0])


def _quadratic_set(a: float, b: float, c: float) -> tuple[float, float]:
    """Hull of {t : a t^2 + b t + c <= 0}; NaNs where it is empty."""
    discriminant = b * b - 4 * a * c
    if a <= 0:  # everything, or all but an interval
        return (-np.inf, np.inf)
    if discriminant < 0:
        return (np.nan, np.nan)
    half = np.sqrt(discriminant)
    return (float((-b - half) / (2 * a)), float((-b + half) / (2 * a)))


def _classical(sums: Arrays, theta: Array, bread: Array) -> Estimate:
    n = float(sums["n"][0])
    rss = sums["yy"][0] - 2 * theta @ sums["ay"] + theta @ sums["aa"] @ theta
    df = n - rank(bread)
    variance = rss / df if df > 0 else np.nan
    return Estimate(theta, bread * variance, int(n))
