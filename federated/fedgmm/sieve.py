"""A curve g from summed moments: penalised sieve GMM, polynomial 2SLS, direct regression.

y = g(x) + w b + eps with E[eps | z, w] = 0. Solving for g is an ill-posed inverse problem, so g is
a penalised spline with a fixed weight on its roughness. Choosing knots or penalty by the GMM
criterion on held-out moments fails badly here, because that criterion is flat; the defaults are
fixed instead. Instruments are splines of z and of the fitted first stage, the direction in which z
moves x.

Sources: Newey and Powell (2003) and Chen and Pouzo (2012) for sieve minimum distance; Hansen
(1982) for the test.
"""

import numpy as np

from federated.fedgmm import bases
from federated.fedgmm.design import Array, Arrays
from federated.fedgmm.linear import SPLINE_ZERO, Estimate, inverse, over_identified, rank


def penalised_regression(sums: Arrays, penalty: Array) -> Estimate:
    """Regression of y on A with a penalty: the direct estimate that ignores endogeneity."""
    n = float(sums["n"][0])
    bread = inverse(sums["aa"] / n + penalty)
    theta = bread @ sums["ay"] / n
    rss = sums["yy"][0] - 2 * theta @ sums["ay"] + theta @ sums["aa"] @ theta
    return Estimate(theta, bread @ (sums["aa"] / n) @ bread * rss / n**2, int(n))


def sieve_gmm(sums: Arrays, penalty: Array, omega: Arrays | None = None) -> Estimate:
    """Penalised GMM for the coefficients of A.

    Parameters
    ----------
    sums : of `statistics.moments`.
    penalty : (k, k), added to the GMM criterion.
    omega : of `statistics.score_covariance` at a first-step estimate. Without it the weights are
        those of 2SLS, and the covariance is the homoskedastic one.

    Returns
    -------
    Estimate
        Its covariance is the sandwich of the penalised estimator: it counts noise, not the bias
        that smoothing adds. J's degrees of freedom are its expectation without that bias,
        m - 2 tr S + tr S^2, where S is the smoother's action on the fitted moments.
    """
    n = float(sums["n"][0])
    cross, target = sums["ba"] / n, sums["by"] / n
    if omega is None:
        scores, variance = sums["bb"] / n, 1.0
    else:
        scores, variance = omega["omega"] / n, float(omega["ee"][0]) / n
    weights = inverse(scores, SPLINE_ZERO)
    information = cross.T @ weights @ cross
    bread = inverse(information * variance + penalty)
    theta = bread @ (cross.T @ weights @ target) * variance
    meat = information * variance**2
    if omega is None:
        meat = meat * _residual_variance(sums, theta)
        return Estimate(theta, bread @ meat @ bread / n, int(n))
    mean_moment = target - cross @ theta
    smoother = bread @ information * variance
    effective = float(2 * np.trace(smoother) - np.trace(smoother @ smoother))
    j = float(n * mean_moment @ weights @ mean_moment)
    covariance = bread @ meat @ bread / n
    return over_identified(theta, covariance, int(n), j, rank(scores, SPLINE_ZERO) - effective)


def curve_penalty(size: int, others: int, smoothing: float) -> Array:
    """Roughness penalty on the first `size` coefficients, none on the rest, (k, k)."""
    penalty = np.zeros((size + others, size + others))
    penalty[:size, :size] = smoothing * bases.roughness(size)
    return penalty


def _residual_variance(sums: Arrays, theta: Array) -> float:
    n = float(sums["n"][0])
    rss = sums["yy"][0] - 2 * theta @ sums["ay"] + theta @ sums["aa"] @ theta
    return float(rss / n)
