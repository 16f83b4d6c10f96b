"""DP-2S-GD against two-stage least squares, its sensitivity and its accounting."""

import math

import numpy as np
import pytest

from cluster.errors import UsageError
from federated.fedgmm.design import Array
from federated.fedgmm.private import noisy_descent as nd
from federated.fedgmm.private.design import PrivateDesign
from federated.fedgmm.scenarios import draw
from federated.streams import stream

LINEAR = PrivateDesign("linear", (-12.0, 12.0), ((-6.0, 6.0),), ((-3.0, 3.0), (-3.0, 3.0)))
FREE = nd.DescentSettings(4000, (0.5, 0.5), (math.inf, math.inf))


def sample(n: int) -> tuple[Array, Array, Array, Array]:
    """y, two treatments, three instruments, and a constant with one control."""
    rng = stream(0, "descent")
    z, control, e = rng.uniform(-1, 1, (n, 3)), rng.uniform(-1, 1, n), rng.uniform(-1, 1, n)
    x = z @ np.array([[0.8, 0.1], [0.0, 0.7], [0.3, -0.4]]) + 0.3 * control[:, None] + e[:, None]
    w = np.column_stack([np.ones(n), control])
    return 0.2 + x @ np.array([1.0, -0.5]) + 0.4 * control + e, x, z, w


def two_stage(y: Array, x: Array, z: Array, w: Array) -> Array:
    b, a = np.hstack([w, z]), np.hstack([w, x])
    fitted = b @ np.linalg.lstsq(b, a, rcond=None)[0]
    return np.asarray(np.linalg.lstsq(fitted, y, rcond=None)[0])


def test_without_noise_and_clipping_it_converges_to_2sls() -> None:
    y, x, z, w = sample(500)
    found = nd.noisy_descent(y, x, z, w, math.inf, FREE, stream(0, "none"))
    np.testing.assert_allclose(found.beta, two_stage(y, x, z, w), atol=1e-9)
    assert found.path.shape == (4001, 4)
    np.testing.assert_array_equal(found.path[0], 0.0)
    assert math.isinf(found.rho)


def test_accounting_adds_up() -> None:
    y, x, z, w = sample(500)
    settings = nd.DescentSettings(40, (0.3, 0.3), (0.5, 0.25), first_share=0.25)
    found = nd.noisy_descent(y, x, z, w, 0.8, settings, stream(0, "noise"))
    first, second = found.releases
    assert first.rho == pytest.approx(0.2)
    assert second.rho == pytest.approx(0.6)
    assert found.rho == pytest.approx(0.8)
    for release, clip in ((first, 0.5), (second, 0.25)):
        assert 40 * (2 * clip / 500) ** 2 / (2 * release.sigma**2) == pytest.approx(release.rho)
    ledger = found.ledger(1e-5)
    assert ledger.rho == pytest.approx(0.8)
    assert ledger.exact_epsilon < ledger.epsilon == ledger.zcdp_epsilon


def test_clipped_gradients_move_by_no_more_than_the_sensitivity() -> None:
    y, x, z, w = sample(200)
    b, clip = np.hstack([w, z]), 0.3
    rng = stream(1, "rows")
    for size in (0.1, 1.0, 1e6):
        theta, beta = rng.normal(0, size, (5, 2)), rng.normal(0, size, 4)
        rows = [np.r_[i] for i in range(len(y))]
        ones = [nd.first_gradient(theta, x[i], b[i], clip) for i in rows]
        twos = [nd.second_gradient(beta, theta, y[i], b[i], w[i], clip) for i in rows]
        for parts, whole in (
            (ones, nd.first_gradient(theta, x, b, clip)),
            (twos, nd.second_gradient(beta, theta, y, b, w, clip)),
        ):
            lengths = [np.linalg.norm(part) for part in parts]
            assert max(lengths) <= clip * (1 + 1e-12)
            assert max(lengths) > 0.99 * clip
            np.testing.assert_allclose(np.sum(parts, axis=0), whole, atol=1e-9)


def test_gradients_without_clipping_are_those_of_the_squared_error() -> None:
    y, x, z, w = sample(50)
    b = np.hstack([w, z])
    theta, beta = stream(2, "at").normal(size=(5, 2)), stream(3, "at").normal(size=4)
    np.testing.assert_allclose(
        nd.first_gradient(theta, x, b, math.inf), b.T @ (b @ theta - x), atol=1e-12
    )
    f = np.hstack([w, b @ theta])
    np.testing.assert_allclose(
        nd.second_gradient(beta, theta, y, b, w, math.inf), f.T @ (f @ beta - y), atol=1e-12
    )


def test_noise_has_the_calibrated_scale() -> None:
    """One iteration from zero: the step's deviation from the noiseless one, over many draws."""
    y, x, z, w = sample(100)
    settings = nd.DescentSettings(1, (1.0, 0.5), (1.0, 0.2))
    still = nd.noisy_descent(y, x, z, w, math.inf, settings, stream(0, "none")).theta
    moves = [
        nd.noisy_descent(y, x, z, w, 2.0, settings, stream(0, "draw", i)).theta - still
        for i in range(400)
    ]
    assert np.std(moves) == pytest.approx(2 * 1.0 / 100 * math.sqrt(1 / 2.0), rel=0.05)


def test_defaults_find_the_coefficient_at_a_moderate_budget() -> None:
    """At the zCDP of epsilon 1 and delta 1e-5; without noise it is closer to 2SLS."""
    for seed in range(3):
        rows = draw("linear", "code", 20_000, seed).rows
        noisy, found = nd.private_descent(rows, LINEAR, 0.03, stream(seed, "noise"))
        still, _ = nd.private_descent(rows, LINEAR, math.inf, stream(seed, "noise"))
        assert abs(noisy[0] - 1.0) < 0.15
        assert abs(still[0] - 1.0) < 0.05
        assert noisy[0] != still[0]
        assert found.rho == pytest.approx(0.03)


def test_what_cannot_descend_is_refused() -> None:
    y, x, z, w = sample(20)
    with pytest.raises(UsageError, match=r"rho must be positive, got 0\.0"):
        nd.noisy_descent(y, x, z, w, 0.0, FREE, stream(0, "none"))
    with pytest.raises(UsageError, match="without clipping has no finite sensitivity"):
        nd.noisy_descent(y, x, z, w, 1.0, FREE, stream(0, "none"))
    with pytest.raises(UsageError, match="needs an iteration, got 0"):
        nd.DescentSettings(0, (1.0, 1.0), (1.0, 1.0))
    with pytest.raises(UsageError, match="positive steps and clips"):
        nd.DescentSettings(1, (1.0, 0.0), (1.0, 1.0))
    with pytest.raises(UsageError, match=r"share must lie between 0 and 1, got 1\.0"):
        nd.DescentSettings(1, (1.0, 1.0), (1.0, 1.0), first_share=1.0)
    curve = PrivateDesign("curve", (0.0, 1.0), ((0.0, 1.0),), ((0.0, 1.0),))
    rows = draw("linear", "code", 10, 0).rows
    with pytest.raises(UsageError, match="fits a linear model, not a curve"):
        nd.private_descent(rows, curve, 1.0, stream(0, "none"))
