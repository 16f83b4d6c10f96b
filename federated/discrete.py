"""Discrete Gaussian noise: integers with probability proportional to exp(-k^2 / (2 sigma^2)).

It gives the same zCDP as continuous Gaussian noise of this sigma to sums that are integers
(Canonne, Kamath and Steinke, 2020, Theorem 4), where rounded continuous noise would not, and it
can be added inside integer arithmetic modulo 2^64. Sampling rejects from the discrete Laplace
distribution (their Algorithm 3). Acceptance uses float probabilities and a pseudo-random
generator: the distribution is exact up to rounding of these, about 1e-16.
"""

import math

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UsageError

Integers = NDArray[np.int64]

LARGEST_SIGMA = 2.0**50
"""Beyond it, differences of neighbouring integers drown in the rounding of float64."""

_TERMS = 200
"""Terms of sums over the integers of which all later ones round to zero."""


def discrete_gaussian(size: int, sigma: float, rng: np.random.Generator) -> Integers:
    """Independent draws from the discrete Gaussian, (size,) int64.

    Parameters
    ----------
    sigma : scale parameter, zero (all draws are 0) to 2^50. The standard deviation is a little
        smaller, and equal to 1e-8 from sigma = 1 on.

    Raises
    ------
    UsageError
        For a sigma outside that range.
    """
    if not 0 <= sigma <= LARGEST_SIGMA:
        raise UsageError(f"Discrete noise needs 0 <= sigma <= 2^50, got {sigma}.")
    if sigma == 0:
        return np.zeros(size, dtype=np.int64)
    found: list[Integers] = []
    missing = size
    while missing > 0:
        batch = _accepted(int(2.2 * missing) + 16, sigma, rng)[:missing]
        found.append(batch)
        missing -= len(batch)
    return np.concatenate([*found, np.zeros(0, dtype=np.int64)])


def discrete_laplace(size: int, scale: int, rng: np.random.Generator) -> Integers:
    """Independent draws with probability proportional to exp(-|k| / scale), (size,) int64.

    The difference of two independent geometric variables with success 1 - exp(-1 / scale)
    (Inusah and Kozubowski, 2006). Each is u + scale v: u in 0..scale-1 with weights
    exp(-u / scale) by rejection from the uniform, v geometric with success 1 - 1/e, so large
    scales keep every integer possible, unlike a rounded logarithm.
    """
    first, second = _geometric(size, scale, rng), _geometric(size, scale, rng)
    return first - second


def probability(k: NDArray[np.int64], sigma: float) -> NDArray[np.float64]:
    """The probability of each integer of `k` under the discrete Gaussian."""
    density = np.exp(-(k.astype(np.float64) ** 2) / (2 * sigma**2))
    if sigma > 1:  # Poisson summation: sum_k e^(-k^2/2s^2) = s sqrt(2 pi) sum_k e^(-2 pi^2 s^2 k^2)
        terms = np.arange(1, _TERMS) ** 2
        norm = (
            sigma
            * math.sqrt(2 * math.pi)
            * (1 + 2 * np.exp(-2 * (math.pi * sigma) ** 2 * terms).sum())
        )
    else:
        norm = 1 + 2 * np.exp(-(np.arange(1, _TERMS) ** 2) / (2 * sigma**2)).sum()
    return np.asarray(density / norm)


def sum_gap(terms: int, sigma: float) -> float:
    """How far a sum of discrete Gaussians is from one discrete Gaussian, in log density.

    Kairouz, Liu and Steinke (2021), on sums of discrete Gaussians: tau = 10 sum_{k=1}^{terms-1}
    exp(-2 pi^2 sigma^2 k / (k + 1)). The sum of `terms` draws per coordinate, each of scale
    sigma, then satisfies zCDP with (1/2) min(mu^2 + tau d / 2, (mu + tau sqrt d)^2) instead of
    mu^2 / 2, where d counts coordinates. It is below 1e-16 for sigma > 2.1 and up to 1000 terms.
    """
    k = np.arange(1, terms)
    return float(10 * np.exp(-2 * (math.pi * sigma) ** 2 * k / (k + 1)).sum())


def sum_rho(sensitivity: float, terms: int, sigma: float, dimension: int) -> float:
    """zCDP of a sum of `terms` discrete Gaussian vectors of scale sigma; see `sum_gap`."""
    tau = sum_gap(terms, sigma)
    mu = sensitivity / (sigma * math.sqrt(terms))
    return min(mu**2 + tau * dimension / 2, (mu + tau * math.sqrt(dimension)) ** 2) / 2


def _accepted(size: int, sigma: float, rng: np.random.Generator) -> Integers:
    scale = math.floor(sigma) + 1
    proposed = discrete_laplace(size, scale, rng)
    excess = (np.abs(proposed) - sigma**2 / scale) / sigma
    return proposed[rng.random(size) < np.exp(-(excess**2) / 2)]


def _geometric(size: int, scale: int, rng: np.random.Generator) -> Integers:
    rest = np.zeros(size, dtype=np.int64)
    open_places = np.arange(size)
    while len(open_places):
        proposed = rng.integers(0, scale, len(open_places))
        good = rng.random(len(open_places)) < np.exp(-proposed / scale)
        rest[open_places[good]] = proposed[good]
        open_places = open_places[~good]
    return np.asarray(rest + scale * (rng.geometric(-math.expm1(-1.0), size) - 1), dtype=np.int64)
