"""Estimators from summed moments against closed forms on pooled rows, for any partition."""

import numpy as np
import pytest
from numpy.typing import NDArray

from federated.fedgmm import control, linear, scenarios, sieve, sources
from federated.fedgmm.baselines import pooled_2sls, pooled_ols, pooled_polynomial
from federated.fedgmm.bases import roughness, spline, spline_slope
from federated.fedgmm.design import Design
from federated.fedgmm.estimators import (
    control_curve,
    first_stage,
    moment_sums,
    polynomial_curve,
    score_covariance,
    sieve_curve,
    two_step,
)
from federated.fedgmm.rows import Dataset, Rows
from federated.partition import by_column, even
from federated.streams import stream
from tests.federated.holding import Holding, partitions

Floats = NDArray[np.float64]


def made_up(n: int = 600, seed: int = 3) -> Rows:
    """Two treatments, three instruments, two controls, heteroskedastic errors."""
    rng = stream(seed, "made up")
    z, w = rng.normal(size=(n, 3)), rng.normal(size=(n, 2)) * [1.0, 30.0] + [0.0, 1900.0]
    hidden = rng.normal(size=n)
    x = z @ rng.normal(size=(3, 2)) + hidden[:, None] + rng.normal(size=(n, 2))
    y = x @ [1.5, -0.7] + w @ [0.3, 0.01] + 2 * hidden + rng.normal(size=n) * (1 + z[:, 0] ** 2)
    return Rows(y, x, z, w)


def direct_gmm(rows: Rows) -> tuple[Floats, Floats, float]:
    """Two-step GMM on pooled rows, from the textbook formulas: coefficients, se, J."""
    n = len(rows)
    one = np.ones((n, 1))
    a, b = np.hstack([rows.x, one, rows.w]), np.hstack([rows.z, one, rows.w])
    projection = b @ np.linalg.solve(b.T @ b, b.T @ a)
    first = np.linalg.solve(projection.T @ a, projection.T @ rows.y)
    e = rows.y - a @ first
    weights = np.linalg.inv((b * e[:, None] ** 2).T @ b / n)
    g = b.T @ a / n
    theta = np.linalg.solve(g.T @ weights @ g, g.T @ weights @ b.T @ rows.y / n)
    covariance = np.linalg.inv(g.T @ weights @ g) / n
    moment = b.T @ (rows.y - a @ theta) / n
    se = np.asarray(np.sqrt(np.diag(covariance)), dtype=np.float64)
    return np.asarray(theta), se, float(n * moment @ weights @ moment)


@pytest.mark.parametrize("which", range(4))
def test_linear_estimates_equal_pooled_ones_for_every_partition(which: int) -> None:
    rows = made_up()
    clients = Holding.split(rows, partitions(len(rows))[which])
    scale = clients.scale()
    sums = moment_sums(clients, Design("linear", scale))
    unit = scale.sd[0] / scale.sd[1:3]
    for estimate, pooled in (
        (linear.two_stage(sums.total), pooled_2sls(rows)),
        (linear.ols(sums.total), pooled_ols(rows)),
    ):
        found = linear.coefficients(estimate, unit)
        np.testing.assert_allclose([c.value for c in found], [c.value for c in pooled], rtol=1e-9)
        np.testing.assert_allclose([c.se for c in found], [c.se for c in pooled], rtol=1e-9)
    theta, se, j = direct_gmm(rows)
    gmm = two_step(clients, sums)
    found = linear.coefficients(gmm, unit)
    np.testing.assert_allclose([c.value for c in found], theta[:2], rtol=1e-9)
    np.testing.assert_allclose([c.se for c in found], se[:2], rtol=1e-9)
    assert gmm.j == pytest.approx(j, rel=1e-8)
    assert gmm.j_df == 1


def test_homoskedastic_weights_make_gmm_two_stage_least_squares() -> None:
    clients = Holding([made_up()])
    sums = moment_sums(clients, Design("linear", clients.scale())).total
    constant = {"omega": 2.5 * sums["bb"], "ee": np.array([1.0])}
    np.testing.assert_allclose(
        linear.gmm(sums, constant).theta, linear.two_stage(sums).theta, rtol=1e-9, atol=1e-12
    )


def test_sandwich_equals_the_robust_formula() -> None:
    rows = made_up()
    clients = Holding([rows])
    design = Design("linear", clients.scale())
    sums = moment_sums(clients, design)
    estimate = linear.two_stage(sums.total)
    y, a, b = design.columns(rows)
    projected = b @ np.linalg.solve(b.T @ b, b.T @ a)
    bread = np.linalg.inv(projected.T @ projected)
    meat = (projected * ((y - a @ estimate.theta) ** 2)[:, None]).T @ projected
    omega = score_covariance(clients, sums, estimate.theta)
    np.testing.assert_allclose(
        linear.sandwich(sums.total, omega, estimate.theta), bread @ meat @ bread, rtol=1e-8
    )


def test_card_on_nine_regions() -> None:
    card = sources.card()
    assert card.client is not None
    clients = Holding.split(card.rows, by_column(card.client))
    assert len(clients.rows) == 9
    scale = clients.scale()
    sums = moment_sums(clients, Design("linear", scale))
    unit = scale.sd[0] / scale.sd[1:2]
    ols = linear.coefficients(linear.ols(sums.total), unit)[0]
    iv = linear.coefficients(linear.two_stage(sums.total), unit)[0]
    assert round(ols.value, 4) == 0.0747
    assert (round(iv.value, 4), round(iv.se, 4)) == (0.1315, 0.0550)
    assert linear.first_stage_f(sums.total, 1, 1)[0] == pytest.approx(13.26, abs=0.01)


def test_mroz_on_clients() -> None:
    mroz = sources.mroz()
    clients = Holding.split(mroz.rows, even(len(mroz.rows), 6))
    scale = clients.scale()
    sums = moment_sums(clients, Design("linear", scale))
    iv = linear.coefficients(linear.two_stage(sums.total), scale.sd[0] / scale.sd[1:2])[0]
    assert (round(iv.value, 4), round(iv.se, 4)) == (0.0614, 0.0314)


def test_first_stage_f_equals_the_f_test_on_rows() -> None:
    rows = made_up()
    clients = Holding.split(rows, partitions(len(rows))[2])
    found = linear.first_stage_f(
        moment_sums(clients, Design("linear", clients.scale())).total, 2, 3
    )
    n = len(rows)
    short = np.column_stack([np.ones(n), rows.w])
    full = np.column_stack([short, rows.z])
    for t in range(2):
        rss = [
            float(np.sum((rows.x[:, t] - m @ np.linalg.lstsq(m, rows.x[:, t], rcond=None)[0]) ** 2))
            for m in (short, full)
        ]
        expected = (rss[0] - rss[1]) / 3 / (rss[1] / (n - full.shape[1]))
        assert found[t] == pytest.approx(expected, rel=1e-9)


def test_anderson_rubin_interval_ends_where_its_test_turns() -> None:
    rows = made_up()
    rows = Rows(rows.y + 0.7 * rows.x[:, 1], rows.x[:, :1], rows.z, rows.w)
    clients = Holding.split(rows, partitions(len(rows))[1])
    scale = clients.scale()
    sums = moment_sums(clients, Design("linear", scale)).total
    unit = scale.sd[0] / scale.sd[1]
    n = len(rows)
    short = np.column_stack([np.ones(n), rows.w])
    full = np.column_stack([short, rows.z])

    def f_statistic(beta: float) -> float:
        left = rows.y - beta * rows.x[:, 0]
        rss = [
            float(np.sum((left - m @ np.linalg.lstsq(m, left, rcond=None)[0]) ** 2))
            for m in (short, full)
        ]
        return float((rss[0] - rss[1]) / 3 / (rss[1] / (n - full.shape[1])))

    from scipy import stats

    critical = stats.f.ppf(0.95, 3, n - full.shape[1])
    for end in linear.anderson_rubin(sums, 3):
        assert f_statistic(end * unit) == pytest.approx(critical, rel=1e-6)


def test_anderson_rubin_is_unbounded_for_an_irrelevant_instrument() -> None:
    rng = stream(0, "irrelevant")
    x = rng.normal(size=400)
    rows = Rows(x + rng.normal(size=400), x[:, None], rng.normal(size=(400, 1)), np.empty((400, 0)))
    clients = Holding([rows])
    sums = moment_sums(clients, Design("linear", clients.scale())).total
    assert linear.anderson_rubin(sums, 1) == (-np.inf, np.inf)


# --- curves ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def abs_data() -> Dataset:
    return scenarios.draw("abs", "code", 2000, 5)


def curves_of(clients: Holding) -> dict[str, tuple[Floats, Floats]]:
    """Every curve estimator's g and standard error on a grid."""
    stage = first_stage(clients, clients.scale(), 15, 8)
    sums = moment_sums(clients, stage.design)
    grid = np.linspace(-5.0, 5.0, 41)
    return {
        "sieve": sieve_curve(clients, stage, sums, 2e-4).predict(grid),
        "control": control_curve(clients, stage).predict(grid),
        "polynomial": polynomial_curve(clients, stage.design.scale).predict(grid),
    }


@pytest.mark.parametrize("which", [1, 2, 3])
def test_curves_are_the_same_for_every_partition(which: int, abs_data: Dataset) -> None:
    rows = abs_data.rows
    whole = curves_of(Holding([rows]))
    split = curves_of(Holding.split(rows, partitions(len(rows))[which]))
    for name, (g, se) in whole.items():
        np.testing.assert_allclose(split[name][0], g, rtol=0, atol=1e-9, err_msg=name)
        np.testing.assert_allclose(split[name][1], se, rtol=0, atol=1e-9, err_msg=name)


def test_polynomial_curve_equals_pooled_rows(abs_data: Dataset) -> None:
    grid = np.linspace(-4.0, 4.0, 9)
    clients = Holding.split(abs_data.rows, partitions(2000)[2])
    found, _ = polynomial_curve(clients, clients.scale()).predict(grid)
    np.testing.assert_allclose(found, pooled_polynomial(abs_data.rows, grid), atol=1e-8)


def test_sieve_solves_its_penalised_normal_equations_on_rows(abs_data: Dataset) -> None:
    clients = Holding([abs_data.rows])
    stage = first_stage(clients, clients.scale(), 15, 8)
    sums = moment_sums(clients, stage.design)
    penalty = sieve.curve_penalty(15, 0, 2e-4)
    found = sieve.sieve_gmm(sums.total, penalty).theta
    y, a, b = stage.design.columns(abs_data.rows)
    unit = b / np.maximum(np.linalg.norm(b, axis=0), 1e-300)
    basis = np.linalg.svd(unit, full_matrices=False)
    span = basis.U[:, np.sqrt(linear.SPLINE_ZERO) * basis.S[0] < basis.S]
    fitted = span @ (span.T @ a)
    n = len(y)
    expected = np.linalg.solve(fitted.T @ fitted / n + penalty, fitted.T @ y / n)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_control_function_is_a_regression_on_x_and_the_residual(abs_data: Dataset) -> None:
    clients = Holding([abs_data.rows])
    stage = first_stage(clients, clients.scale(), 15, 8)
    curve = control_curve(clients, stage)
    y, a, _ = curve.design.columns(abs_data.rows)
    n = len(y)
    penalty = sieve.curve_penalty(15, 7, 1e-6)
    expected = np.linalg.solve(a.T @ a / n + penalty, a.T @ y / n)
    np.testing.assert_allclose(a @ curve.estimate.theta, a @ expected, atol=1e-8)
    h = a[:, 15:] @ curve.estimate.theta[15:]
    assert curve.level == pytest.approx(float(h.mean()), abs=1e-10)
    assert control.centred_level(curve.design, curve.estimate.theta, a.mean(axis=0)) == (
        pytest.approx(curve.level, abs=1e-10)
    )


def test_splines_reproduce_lines_and_their_slopes_are_derivatives() -> None:
    x = np.linspace(-4.0, 4.0, 201)
    columns = spline(x, 12)
    np.testing.assert_allclose(columns.sum(axis=1), 1.0, atol=1e-12)
    line = np.linalg.lstsq(columns, 2.0 * x - 1.0, rcond=None)[0]
    np.testing.assert_allclose(columns @ line, 2.0 * x - 1.0, atol=1e-10)
    np.testing.assert_allclose(roughness(12) @ line, 0.0, atol=1e-9)
    step = 1e-6
    difference = (spline(x + step, 12) - spline(x - step, 12)) / (2 * step)
    np.testing.assert_allclose(spline_slope(x, 12), difference, atol=1e-5)


@pytest.mark.parametrize("estimator", ["sieve", "control"])
def test_intervals_cover_a_linear_truth(estimator: str) -> None:
    """Neither smoothing nor splines bias a straight line, so 95 % bands must cover it."""
    grid = np.linspace(-3.0, 3.0, 13)
    covered = []
    for seed in range(30):
        data = scenarios.draw("linear", "code", 2000, 700 + seed)
        clients = Holding([data.rows])
        stage = first_stage(clients, clients.scale(), 15, 8)
        if estimator == "sieve":
            sums = moment_sums(clients, stage.design)
            curve = sieve_curve(clients, stage, sums, 2e-4)
        else:
            curve = control_curve(clients, stage)
        g, se = curve.predict(grid)
        covered.append(np.mean(np.abs(g - grid) < 1.96 * se))
    assert float(np.mean(covered)) >= 0.88


def test_j_test_of_the_sieve_keeps_its_size() -> None:
    """Valid instruments are rejected at 5 % about one time in twenty: 40 seeds, at most 6."""
    rejected = 0
    for seed in range(40):
        data = scenarios.draw("linear", "paper", 4000, 900 + seed)
        clients = Holding([data.rows])
        stage = first_stage(clients, clients.scale(), 15, 8)
        sums = moment_sums(clients, stage.design)
        p = sieve_curve(clients, stage, sums, 2e-4).estimate.j_p
        assert p is not None
        rejected += p < 0.05
    assert rejected <= 6


def test_j_test_rejects_an_instrument_that_acts_directly() -> None:
    rows = made_up(2000)
    spoilt = Rows(rows.y + 0.5 * rows.z[:, 2], rows.x, rows.z, rows.w)
    for used, rejects in ((rows, False), (spoilt, True)):
        clients = Holding([used])
        p = two_step(clients, moment_sums(clients, Design("linear", clients.scale()))).j_p
        assert p is not None
        assert (p < 0.01) == rejects
