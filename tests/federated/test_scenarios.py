"""The synthetic processes against closed forms of their moments; seeds and streams."""

import pickle
import re
from collections.abc import Callable

import numpy as np
import pytest
from scipy.integrate import quad

from cluster.errors import UsageError
from federated.fedgmm.rows import Dataset, Floats
from federated.fedgmm.scenarios import draw, structural
from federated.streams import stream

ROWS = 200_000
SCENARIOS = ("abs", "step", "linear", "sin")
PROCESSES = ("paper", "code")
# weight of Z2 in X, weight of e in Y
WEIGHTS = {"paper": (1.0, 1.0), "code": (0.0, 2.0)}


def assert_mean(sample: Floats, expected: float) -> None:
    """Hold a sample mean within five standard errors of its expectation."""
    error = sample.std() / np.sqrt(len(sample))
    assert abs(sample.mean() - expected) < 5.0 * error


def expectation_over_x(function: Callable[[float], float], process: str) -> float:
    """Integrate a function over the exact density of X: uniforms convolved with a normal."""
    second, _ = WEIGHTS[process]
    sd = np.sqrt(1.01)

    def normal(u: float) -> float:
        return float(np.exp(-0.5 * (u / sd) ** 2) / (sd * np.sqrt(2 * np.pi)))

    def density_of_z(s: float) -> float:
        if second == 0.0:
            return 1 / 6 if abs(s) <= 3 else 0.0
        return max(0.0, (6 - abs(s)) / 36)  # sum of two U[-3, 3] is triangular

    grid = np.linspace(-12.0, 12.0, 2401)
    width = 3.0 if second == 0.0 else 6.0
    pdf = [
        quad(lambda s, u=u: density_of_z(s) * normal(u - s), -width, width, points=[0.0])[0]
        for u in grid
    ]
    return float(np.trapezoid(np.array([function(u) for u in grid]) * np.array(pdf), grid))


@pytest.mark.parametrize("process", PROCESSES)
def test_second_moments_of_the_linear_process(process: str) -> None:
    second, confounding = WEIGHTS[process]
    rows = draw("linear", process, ROWS, seed=3).rows
    x, z1, z2 = rows.x[:, 0], rows.z[:, 0], rows.z[:, 1]
    eps = rows.y - x
    var_x = 3.0 + 3.0 * second + 1.0 + 0.01
    var_eps = confounding**2 + 0.01

    for centred in (x, z1, z2, eps):
        assert_mean(centred, 0.0)
    assert_mean(z1**2, 3.0)
    assert_mean(z2**2, 3.0)
    assert_mean(z1 * z2, 0.0)
    assert_mean(x**2, var_x)
    assert_mean(eps**2, var_eps)
    assert_mean(x * eps, confounding)  # the endogeneity: cov(X, eps) = confounding * var(e)
    assert_mean(x * z1, 3.0)
    assert_mean(x * z2, 3.0 * second)
    assert_mean(rows.y**2, var_x + 2.0 * confounding + var_eps)


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_instruments_are_valid_and_noise_is_as_stated(scenario: str, process: str) -> None:
    data = draw(scenario, process, ROWS, seed=4)
    assert data.truth is not None
    eps = data.rows.y - data.truth.function(data.rows.x[:, 0])
    for z in data.rows.z.T:
        for f in (z, z**2 - 3.0, np.sign(z), np.sin(z)):
            assert_mean(eps * f, 0.0)
    assert_mean(eps**2, WEIGHTS[process][1] ** 2 + 0.01)


@pytest.mark.parametrize("process", PROCESSES)
def test_mean_of_g0_matches_the_integral_over_the_density_of_x(process: str) -> None:
    expected = {
        "abs": expectation_over_x(abs, process),
        "linear": 0.0,
        "sin": 0.0,
        "step": {"paper": 0.5, "code": 1.75}[process],
    }
    for scenario, mean in expected.items():
        data = draw(scenario, process, ROWS, seed=5)
        assert data.truth is not None
        assert_mean(data.rows.y, mean)
        assert_mean(data.truth.function(data.truth.test_x), mean)


def test_integral_helper_knows_the_variance() -> None:
    assert expectation_over_x(lambda u: u * u, "code") == pytest.approx(4.01, abs=1e-4)
    assert expectation_over_x(lambda u: u * u, "paper") == pytest.approx(7.01, abs=1e-3)


@pytest.mark.parametrize("process", PROCESSES)
def test_sine_power_matches_its_characteristic_function(process: str) -> None:
    second, _ = WEIGHTS[process]
    uniform = np.sin(6.0) / 6.0  # E cos(2 Z1)
    cos_2x = uniform * (uniform if second else 1.0) * np.exp(-0.5 * 4.0 * 1.01)
    data = draw("sin", process, ROWS, seed=6)
    assert_mean(np.sin(data.rows.x[:, 0]) ** 2, (1.0 - cos_2x) / 2.0)


def test_step_has_the_values_of_each_process() -> None:
    x = np.array([-2.0, -1e-9, 0.0, 3.0])
    assert structural("step", "paper")(x).tolist() == [0.0, 0.0, 1.0, 1.0]
    assert structural("step", "code")(x).tolist() == [1.0, 1.0, 2.5, 2.5]


def test_shapes_and_names() -> None:
    data = draw("abs", "code", 7, seed=0)
    assert (data.rows.x.shape, data.rows.z.shape, data.rows.w.shape) == ((7, 1), (7, 2), (7, 0))
    assert len(data.rows) == 7
    assert (data.names.x, data.names.z, data.names.w) == (("x",), ("z1", "z2"), ())
    assert data.truth is not None
    assert data.truth.test_x.shape == (7,)
    assert np.abs(data.rows.z).max() <= 3.0


def arrays(data: Dataset) -> list[Floats]:
    assert data.truth is not None
    return [data.rows.y, data.rows.x, data.rows.z, data.truth.test_x]


def test_a_seed_repeats_and_two_seeds_differ() -> None:
    first, again, other = (draw("abs", "paper", 50, seed) for seed in (1, 1, 2))
    for a, b, c in zip(arrays(first), arrays(again), arrays(other), strict=True):
        assert np.array_equal(a, b)
        assert not np.isin(a, c).any()


def test_test_treatments_are_independent_of_the_rows() -> None:
    data = draw("linear", "paper", ROWS, seed=7)
    assert data.truth is not None
    assert not np.isin(data.truth.test_x, data.rows.x).any()
    assert_mean(data.truth.test_x * data.rows.x[:, 0], 0.0)
    assert_mean(data.truth.test_x**2, 7.01)


def test_streams_of_different_purposes_share_nothing() -> None:
    draws = {
        purpose: stream(5, *purpose).random(1000)
        for purpose in (("train",), ("test",), ("partition",), ("client", 1), ("client", 11))
    }
    for one, a in draws.items():
        assert np.array_equal(a, stream(5, *one).random(1000))
        for other, b in draws.items():
            assert one == other or abs(np.corrcoef(a, b)[0, 1]) < 5.0 / np.sqrt(1000)
    assert not np.isin(stream(6, "train").random(1000), draws[("train",)]).any()


def test_scenarios_of_one_seed_share_treatments() -> None:
    step, sine = draw("step", "code", 20, seed=1), draw("sin", "code", 20, seed=1)
    assert np.array_equal(step.rows.x, sine.rows.x)
    assert not np.array_equal(step.rows.y, sine.rows.y)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_truth_can_be_sent_to_another_process(scenario: str) -> None:
    function = structural(scenario, "code")
    x = np.linspace(-3.0, 3.0, 7)
    assert np.array_equal(pickle.loads(pickle.dumps(function))(x), function(x))


@pytest.mark.parametrize(
    ("scenario", "process", "rows", "message"),
    [
        ("linaer", "code", 10, "There is no scenario 'linaer'; did you mean 'linear'?"),
        ("zzz", "code", 10, "There is no scenario 'zzz'; known: abs, step, linear, sin."),
        ("abs", "papper", 10, "There is no process 'papper'; did you mean 'paper'?"),
        ("abs", "code", 0, "needs at least one row, got rows = 0."),
    ],
)
def test_unusable_arguments(scenario: str, process: str, rows: int, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        draw(scenario, process, rows, seed=0)
