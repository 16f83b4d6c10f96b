"""Discrete Gaussian draws against their probabilities."""

import numpy as np
import pytest
from scipy import stats

from cluster.errors import UsageError
from federated.discrete import discrete_gaussian, discrete_laplace, probability, sum_gap, sum_rho
from federated.streams import stream

DRAWS = 100_000


def chi_square(values: np.ndarray, k: np.ndarray, p: np.ndarray) -> float:
    """p-value of the values' counts at k, with all else in one more cell."""
    counts = np.array([np.sum(values == i) for i in k])
    observed = np.r_[counts, len(values) - counts.sum()]
    expected = len(values) * np.r_[p, 1 - p.sum()]
    keep = expected > 5
    rest_o, rest_e = observed[~keep].sum(), expected[~keep].sum()
    statistic = ((observed - expected) ** 2 / expected)[keep].sum()
    if rest_e > 5:
        statistic += (rest_o - rest_e) ** 2 / rest_e
    return float(stats.chi2.sf(statistic, keep.sum() - 1))


@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.5, 17.3])
def test_draws_follow_the_probabilities(sigma: float) -> None:
    values = discrete_gaussian(DRAWS, sigma, stream(0, "discrete", str(sigma)))
    k = np.arange(-int(4 * sigma) - 1, int(4 * sigma) + 2)
    assert chi_square(values, k, probability(k, sigma)) > 1e-3


def test_the_test_tells_rounded_from_discrete_noise() -> None:
    """Rounded continuous noise has another distribution, and 100 000 draws show it."""
    values = np.rint(stream(0, "rounded").normal(0, 1.0, DRAWS)).astype(np.int64)
    k = np.arange(-5, 6)
    assert chi_square(values, k, probability(k, 1.0)) < 1e-6


def test_probabilities_add_up_to_one() -> None:
    for sigma in (0.2, 0.99, 1.01, 30.0):
        assert probability(np.arange(-400, 401), sigma).sum() == pytest.approx(1.0, abs=1e-12)


def test_laplace_follows_its_probabilities() -> None:
    values = discrete_laplace(DRAWS, 3, stream(0, "laplace"))
    k = np.arange(-20, 21)
    q = np.exp(-1 / 3)
    assert chi_square(values, k, (1 - q) / (1 + q) * q ** np.abs(k)) > 1e-3


@pytest.mark.parametrize("sigma", [1e3, 2.0**45])
def test_large_scales_look_continuous(sigma: float) -> None:
    values = discrete_gaussian(DRAWS, sigma, stream(1, "large", str(sigma)))
    assert stats.kstest(values / sigma, "norm").pvalue > 1e-3
    assert abs(np.mean(values % 2) - 0.5) < 0.01  # not on a coarser grid


def test_shape_zero_and_repeatability() -> None:
    assert discrete_gaussian(5, 0.0, stream(0, "a")).tolist() == [0] * 5
    assert len(discrete_gaussian(0, 2.0, stream(0, "a"))) == 0
    first, again = (discrete_gaussian(50, 9.0, stream(0, "a")) for _ in range(2))
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("sigma", [-1.0, np.nan, np.inf, 2.0**51])
def test_impossible_scales_are_refused(sigma: float) -> None:
    with pytest.raises(UsageError, match="0 <= sigma <= 2"):
        discrete_gaussian(1, sigma, stream(0, "a"))


@pytest.mark.parametrize(("terms", "sigma"), [(2, 0.6), (5, 0.5)])
def test_a_sum_of_draws_stays_within_the_gap(terms: int, sigma: float) -> None:
    """The exact distribution of the sum by convolution; tau bounds its log ratio to one draw's."""
    one = probability(np.arange(-40, 41), sigma)
    total = one
    for _ in range(terms - 1):
        total = np.convolve(total, one)
    k = np.arange(len(total)) - len(total) // 2
    near = np.abs(k) < 3 * sigma * np.sqrt(terms)
    ratio = np.log(total[near] / probability(k[near], sigma * np.sqrt(terms)))
    assert 1e-12 < np.abs(ratio).max() <= sum_gap(terms, sigma)


def test_fine_grids_lose_nothing_to_the_sum() -> None:
    assert sum_gap(1000, 2.2) < 1e-16
    assert sum_rho(3.0, 4, 100.0, 500) == pytest.approx(9.0 / (2 * 4 * 100.0**2), rel=1e-12)
    assert sum_rho(3.0, 4, 0.5, 500) > 9.0 / (2 * 4 * 0.25)
