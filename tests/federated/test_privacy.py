"""Privacy accounting against quadrature, high precision arithmetic and bounds from the papers."""

import math

import mpmath  # type: ignore[import-untyped]  # comes with torch
import numpy as np
import pytest
from scipy import integrate, stats

from cluster.errors import UsageError
from federated import privacy
from federated.privacy import Budget


def hockey_stick(epsilon: float, mu: float) -> float:
    """The definition of delta: the integral of max(p - e^epsilon q, 0), by quadrature."""
    start = epsilon / mu + mu / 2  # p > e^epsilon q beyond it
    p, q = stats.norm(mu, 1), stats.norm(0, 1)
    value, _ = integrate.quad(
        lambda t: p.pdf(t) - math.exp(epsilon) * q.pdf(t), start, start + 40, epsabs=0, epsrel=1e-10
    )
    return float(value)


def precise_log_delta(epsilon: float, mu: float) -> float:
    """Theorem 8 of Balle and Wang as printed, with 60 digits."""
    with mpmath.workdps(60):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        delta = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
        return float(mpmath.log(delta))


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 5.0])
@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 3.0])
def test_delta_is_the_hockey_stick_divergence(epsilon: float, mu: float) -> None:
    if epsilon / mu < 30:
        assert privacy.gaussian_delta(epsilon, mu) == pytest.approx(
            hockey_stick(epsilon, mu), rel=1e-7
        )


@pytest.mark.parametrize("epsilon", [1e-8, 1e-4, 0.1, 1.0, 30.0, 1000.0])
@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.05, 1.0, 10.0, 60.0])
def test_delta_keeps_its_digits_for_extreme_parameters(epsilon: float, mu: float) -> None:
    if epsilon / mu < 300:  # beyond it even the logarithm is of no use
        expected = precise_log_delta(epsilon, mu)
        assert privacy.gaussian_log_delta(epsilon, mu) == pytest.approx(expected, abs=1e-7)


def test_noise_for_epsilon_one() -> None:
    """The definition says that no smaller noise keeps the promise, and this one does."""
    sigma = privacy.gaussian_sigma(1.0, 1e-5, 1.0)
    assert hockey_stick(1.0, 1 / sigma) == pytest.approx(1e-5, rel=1e-7)
    assert hockey_stick(1.0, 1 / (0.999 * sigma)) > 1e-5
    assert sigma == pytest.approx(3.730632, abs=1e-6)
    assert sigma < math.sqrt(2 * math.log(1.25e5))  # the classical Gaussian mechanism's, 4.84


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 8.0, 200.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
def test_calibration_and_accounting_invert_each_other(epsilon: float, delta: float) -> None:
    mu = privacy.gaussian_mu(epsilon, delta)
    assert privacy.gaussian_delta(epsilon, mu) == pytest.approx(delta, rel=1e-9)
    assert privacy.gaussian_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-9)
    rho = privacy.rho_of_epsilon(epsilon, delta)
    assert privacy.epsilon_of_rho(rho, delta) == pytest.approx(epsilon, rel=1e-9)


def test_zcdp_conversion_lies_between_the_exact_and_the_classical_one() -> None:
    for rho in [1e-4, 0.01, 0.5, 3.0, 50.0]:
        for delta in [1e-10, 1e-5, 1e-2]:
            exact = privacy.gaussian_epsilon(math.sqrt(2 * rho), delta)
            tight = privacy.epsilon_of_rho(rho, delta)
            classical = rho + 2 * math.sqrt(rho * math.log(1 / delta))
            assert exact < tight < classical or exact == tight == 0.0


def test_zcdp_conversion_is_the_best_order() -> None:
    """Corollary 13 of Canonne, Kamath and Steinke on a fine grid of orders."""
    rho, delta = 0.5, 1e-5
    alpha = 1 + np.geomspace(1e-2, 1e3, 200_001)
    log_delta = (
        (alpha - 1) * (alpha * rho - privacy.epsilon_of_rho(rho, delta))
        - np.log(alpha - 1)
        + alpha * np.log1p(-1 / alpha)
    )
    assert log_delta.min() == pytest.approx(math.log(delta), abs=1e-7)


def test_budget_split_keeps_the_promise_together() -> None:
    ledger = Budget(1.0, 1e-5).split({"a": 2.0, "b": 0.5, "none": 0.0}, {"a": 3, "b": 1, "none": 1})
    a, b = ledger["a"], ledger["b"]
    assert a.mu**2 / b.mu**2 == pytest.approx(3.0)
    assert ledger["none"].sigma == 0.0
    assert ledger["none"].rho == 0.0
    assert ledger.rho == pytest.approx(a.rho + b.rho)
    assert a.rho == pytest.approx(privacy.gaussian_rho(2.0, a.sigma))
    assert ledger.exact_epsilon < 1.0  # a fifth was given to a release that needs nothing
    whole = Budget(1.0, 1e-5).split({"a": 2.0, "b": 0.5}, {"a": 3, "b": 1})
    assert whole.exact_epsilon == pytest.approx(1.0)
    assert whole.zcdp_epsilon == pytest.approx(privacy.epsilon_of_rho(whole.rho, 1e-5))
    assert whole.zcdp_epsilon > 1.0


def test_composition_is_one_gaussian() -> None:
    """Two independent Gaussian releases seen together: the divergence on the plane."""
    first, second, epsilon = 0.6, 0.8, 0.7
    grid = np.linspace(-8, 9, 1701)
    u, v = np.meshgrid(grid, grid)
    p = stats.norm.pdf(u, first) * stats.norm.pdf(v, second)
    q = stats.norm.pdf(u) * stats.norm.pdf(v)
    delta = np.maximum(p - math.exp(epsilon) * q, 0).sum() * (grid[1] - grid[0]) ** 2
    assert privacy.gaussian_delta(epsilon, math.hypot(first, second)) == pytest.approx(
        delta, rel=1e-4
    )


def test_infinite_epsilon_is_no_noise() -> None:
    ledger = Budget(math.inf, 1e-5).split({"a": 2.0})
    assert ledger["a"].sigma == 0.0
    assert math.isinf(ledger.rho)
    assert math.isinf(ledger.exact_epsilon)
    assert math.isinf(ledger.zcdp_epsilon)
    assert math.isinf(privacy.rho_of_epsilon(math.inf, 1e-5))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_useless_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(UsageError, match=f"epsilon must be positive, got {epsilon}"):
        Budget(epsilon, 1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan])
def test_useless_delta_is_refused(delta: float) -> None:
    with pytest.raises(UsageError, match=f"delta must lie between 0 and 1, got {delta}"):
        Budget(1.0, delta)


@pytest.mark.parametrize("sensitivity", [-1.0, math.inf, math.nan])
def test_useless_sensitivity_is_refused(sensitivity: float) -> None:
    with pytest.raises(UsageError, match=f"sensitivity .* got {sensitivity}"):
        Budget(1.0, 1e-5).split({"a": sensitivity})


def test_shares_must_name_the_releases() -> None:
    with pytest.raises(UsageError, match=r"shares name \['b'\], the releases are \['a'\]"):
        Budget(1.0, 1e-5).split({"a": 1.0}, {"b": 1.0})
    with pytest.raises(UsageError, match="share of 'a' must be positive, got 0"):
        Budget(1.0, 1e-5).split({"a": 1.0}, {"a": 0.0})


def test_an_unbounded_release_is_not_private() -> None:
    assert math.isinf(privacy.gaussian_rho(math.inf, 3.0))
    with pytest.raises(UsageError, match=r"sensitivity .* got -1"):
        privacy.gaussian_rho(-1.0, 3.0)
    with pytest.raises(UsageError, match="standard deviation must not be negative, got -3"):
        privacy.gaussian_rho(1.0, -3.0)
