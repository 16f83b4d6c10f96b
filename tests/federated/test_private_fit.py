"""Estimates from noisy moments: exact without noise, accurate and honest with it."""

import math

import numpy as np
import pytest

from federated.fedgmm.design import Array
from federated.fedgmm.private import fit as private_fit
from federated.fedgmm.private.design import PrivateDesign, release, second_moments, unsvec
from federated.fedgmm.rows import Rows
from federated.fedgmm.scenarios import draw
from federated.privacy import Budget
from federated.streams import stream

N = 20_000
X, Z = ((-6.0, 6.0),), ((-3.0, 3.0), (-3.0, 3.0))
CURVE = PrivateDesign("curve", (-10.0, 10.0), X, Z)
LINEAR = PrivateDesign("linear", (-12.0, 12.0), X, Z)


def sigma(design: PrivateDesign, epsilon: float) -> float:
    return Budget(epsilon, 1e-5).split({"moments": design.sensitivity})["moments"].sigma


def curve_error(scenario: str, epsilon: float, seed: int) -> float:
    """MSE on test treatments in units of Var(y)."""
    data = draw(scenario, "code", N, seed)
    assert data.truth is not None
    sd = sigma(CURVE, epsilon)
    noisy = release(second_moments(data.rows, CURVE), sd, stream(seed, "noise"))
    g, _ = private_fit.private_curve(noisy, sd, CURVE, N).predict(data.truth.test_x)
    error = np.mean((g - data.truth.function(data.truth.test_x)) ** 2)
    return float(error / data.rows.y.var())


@pytest.mark.parametrize(
    ("scenario", "epsilon", "bound"),
    [
        ("abs", math.inf, 0.005), ("abs", 1.0, 0.009), ("abs", 0.5, 0.013),
        ("step", 1.0, 0.019), ("sin", 1.0, 0.008), ("linear", 1.0, 0.007),
    ],
)  # fmt: skip
def test_curves_are_accurate(scenario: str, epsilon: float, bound: float) -> None:
    assert np.mean([curve_error(scenario, epsilon, seed) for seed in range(3)]) < bound


def with_controls(n: int, seed: int) -> tuple[Rows, Array]:
    """A linear model within its bounds, with an endogenous x and a control; and [b_x, b_w]."""
    rng = stream(seed, "controls")
    z, w, e = rng.uniform(-1, 1, (n, 2)), rng.uniform(0, 1, (n, 1)), rng.uniform(-1, 1, n)
    x = z[:, 0] + 0.5 * z[:, 1] + w[:, 0] + e
    y = 3.0 + 2.0 * x - 1.5 * w[:, 0] + e + rng.uniform(-0.2, 0.2, n)
    return Rows(y, x[:, None], z, w), np.array([2.0, -1.5])


def two_stage_by_hand(rows: Rows) -> Array:
    """2SLS of y on [1, x, w] by two regressions."""
    one = np.ones((len(rows), 1))
    b, a = np.hstack([one, rows.z, rows.w]), np.hstack([one, rows.x, rows.w])
    fitted = b @ np.linalg.lstsq(b, a, rcond=None)[0]
    return np.asarray(np.linalg.lstsq(fitted, rows.y, rcond=None)[0])


def test_without_noise_the_linear_form_is_2sls() -> None:
    rows, _ = with_controls(2000, 0)
    design = PrivateDesign(
        "linear", (-10.0, 15.0), ((-3.0, 4.0),), ((-1.0, 1.0), (-1.0, 1.0)), ((0.0, 1.0),)
    )
    found = private_fit.private_linear(unsvec(second_moments(rows, design)), 0.0, design, 2000)
    expected = two_stage_by_hand(rows)
    assert found.coefficients()[0].value == pytest.approx(expected[1], abs=1e-5)
    assert found.estimate.theta[2] * 12.5 / 0.5 == pytest.approx(expected[2], abs=1e-4)


def test_a_curve_is_drawn_at_the_means_of_the_controls() -> None:
    rows, (slope, control) = with_controls(N, 1)
    design = PrivateDesign(
        "curve", (-10.0, 15.0), ((-3.0, 4.0),), ((-1.0, 1.0), (-1.0, 1.0)), ((0.0, 1.0),)
    )
    curve = private_fit.private_curve(unsvec(second_moments(rows, design)), 0.0, design, N)
    x = np.linspace(-1.5, 2.0, 5)
    expected = 3.0 + slope * x + control * rows.w.mean()
    np.testing.assert_allclose(curve.predict(x)[0], expected, atol=0.15)


def test_linear_coefficient_is_accurate_at_epsilon_one() -> None:
    for seed in range(3):
        rows = draw("linear", "code", N, seed).rows
        sd = sigma(LINEAR, 1.0)
        noisy = release(second_moments(rows, LINEAR), sd, stream(seed, "noise"))
        found = private_fit.private_linear(noisy, sd, LINEAR, N, stream(seed, "se"))
        coefficient = found.coefficients()[0]
        assert abs(coefficient.value - 1.0) < 4 * coefficient.se
        assert coefficient.se < 0.03


def test_standard_errors_know_the_noise() -> None:
    """Over many draws of the noise on one data set, estimates scatter as their errors say."""
    rows = draw("linear", "code", N, 0).rows
    moments, sd = second_moments(rows, LINEAR), sigma(LINEAR, 0.1)
    exact = private_fit.private_linear(unsvec(moments), 0.0, LINEAR, N).coefficients()[0]
    found = [
        private_fit.private_linear(
            release(moments, sd, stream(0, "noise", i)), sd, LINEAR, N, stream(0, "se", i)
        ).coefficients()[0]
        for i in range(40)
    ]
    noise_se = np.sqrt(np.mean([c.se**2 for c in found]) - exact.se**2)
    assert np.std([c.value for c in found]) == pytest.approx(noise_se, rel=0.3)


def test_cleaning_only_takes_noise_away() -> None:
    rows = draw("abs", "code", 2000, 0).rows
    truth = unsvec(second_moments(rows, CURVE))
    noisy = release(second_moments(rows, CURVE), 20.0, stream(0, "noise"))
    clean = private_fit.cleaned(noisy, CURVE)
    np.testing.assert_allclose(private_fit.cleaned(truth, CURVE), truth, atol=1e-9)
    np.testing.assert_allclose(clean @ CURVE.redundant(), 0.0, atol=1e-9)
    assert np.linalg.eigvalsh(clean)[0] > -1e-9
    assert np.linalg.norm(clean - truth) < 0.8 * np.linalg.norm(noisy - truth)
