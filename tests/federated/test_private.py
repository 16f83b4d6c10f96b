"""The private release against its definition: no row, however strange, moves it too far."""

import json

import numpy as np
import pytest
from scipy import stats

from cluster.errors import UsageError
from federated.fedgmm.design import Array
from federated.fedgmm.private import design as private
from federated.fedgmm.private.design import PrivateDesign, release, second_moments, svec, unsvec
from federated.fedgmm.rows import Rows
from federated.streams import stream

CURVE = PrivateDesign(
    "curve", (-4.0, 9.0), ((-6.0, 6.0),), ((-3.0, 3.0), (0.0, 2.0)), ((0.0, 1.0),), 9, 6
)
LINEAR = PrivateDesign(
    "linear", (0.0, 1e5), ((-1.0, 2.0), (5.0, 6.0)), ((0.0, 1.0), (0.0, 9.0)), ((-1.0, 1.0),)
)
SMALL = PrivateDesign("curve", (0.0, 1.0), ((0.0, 1.0),), ((0.0, 1.0),), radius=0.8)
DESIGNS = [CURVE, LINEAR, SMALL]
STRANGE = [0.0, -0.0, 1e300, -1e300, np.inf, -np.inf, np.nan, 1e-300, 5e-324]


def adversarial(design: PrivateDesign, n: int, seed: int) -> Rows:
    """Rows of strange values, ends of the bounds, points inside them, and far outside."""
    rng = stream(seed, "adversary")
    columns = []
    for low, high in [design.y, *design.x, *design.z, *design.w]:
        kinds = np.column_stack(
            [
                rng.choice(STRANGE, n),
                rng.choice([low, high, np.nextafter(low, high), np.nextafter(high, low)], n),
                rng.uniform(low, high, n),
                rng.normal(0, 1e6, n),
            ]
        )
        columns.append(kinds[np.arange(n), rng.integers(0, 4, n)])
    block = np.column_stack(columns)
    p, q = 1 + len(design.x), 1 + len(design.x) + len(design.z)
    return Rows(y=block[:, 0], x=block[:, 1:p], z=block[:, p:q], w=block[:, q:])


@pytest.mark.parametrize("design", DESIGNS)
def test_no_row_is_longer_than_the_radius(design: PrivateDesign) -> None:
    vectors = design.row_vectors(adversarial(design, 20_000, 0))
    norms = np.linalg.norm(vectors, axis=1)
    assert np.isfinite(vectors).all()
    assert norms.max() <= design.radius * (1 + 1e-12)
    assert norms.max() > 0.98 * design.radius  # the radius is not merely some large number


@pytest.mark.parametrize("design", DESIGNS)
def test_a_replaced_row_moves_the_release_by_no_more_than_the_sensitivity(
    design: PrivateDesign,
) -> None:
    rows = adversarial(design, 3000, 1)
    triangles = np.array([svec(np.outer(v, v)) for v in design.row_vectors(rows)])
    other = triangles[stream(1, "pairs").permutation(len(triangles))]
    moves = np.linalg.norm(triangles - other, axis=1)
    assert moves.max() <= design.sensitivity * (1 + 1e-12)
    assert moves.max() > 0.6 * design.sensitivity


def test_a_neighbouring_data_set_moves_the_sum_as_far_as_its_row() -> None:
    rows = adversarial(CURVE, 50, 2)
    neighbour = Rows(rows.y.copy(), rows.x.copy(), rows.z.copy(), rows.w.copy())
    neighbour.y[7], neighbour.x[7], neighbour.z[7] = 1e300, np.nan, -np.inf
    move = np.linalg.norm(second_moments(rows, CURVE) - second_moments(neighbour, CURVE))
    assert 0 < move <= CURVE.sensitivity


def test_the_sensitivity_is_attained_by_orthogonal_rows() -> None:
    """Linear rows [y, 1, x, z] = [1, 1, 1, 1] and [1, 1, -1, -1] are orthogonal and longest."""
    design = PrivateDesign("linear", (-1.0, 1.0), ((-1.0, 1.0),), ((-1.0, 1.0),))
    one, zero = np.ones((1, 1)), np.empty((1, 0))
    first = second_moments(Rows(np.ones(1), one, one, zero), design)
    second = second_moments(Rows(np.ones(1), -one, -one, zero), design)
    assert np.linalg.norm(first - second) == pytest.approx(design.sensitivity, rel=1e-12)


def test_svec_is_an_isometry() -> None:
    a, b = (m + m.T for m in stream(0, "matrices").normal(size=(2, 6, 6)))
    assert svec(a) @ svec(b) == pytest.approx(np.trace(a @ b), rel=1e-12)
    np.testing.assert_allclose(unsvec(svec(a)), a, atol=1e-15)
    with pytest.raises(ValueError, match="length 7"):
        unsvec(np.zeros(7))


def test_noise_has_the_stated_scale() -> None:
    moments, sd = np.arange(3.0 * 4 / 2), 2.5
    rng = stream(1, "noise")
    noise = np.array([svec(release(moments, sd, rng)) - moments for _ in range(5000)])
    assert stats.kstest(noise.ravel() / sd, "norm").pvalue > 1e-3
    assert np.abs(np.corrcoef(noise.T) - np.eye(6)).max() < 0.06


def test_sums_add_up_over_clients() -> None:
    rows = adversarial(CURVE, 100, 3)
    parts = [rows.take(np.arange(0, 30)), rows.take(np.arange(30, 100))]
    together = sum(second_moments(part, CURVE) for part in parts)
    np.testing.assert_allclose(together, second_moments(rows, CURVE), atol=1e-12)


def test_splines_are_a_partition_of_unity_and_short() -> None:
    for size in (4, 5, 20):
        columns = private.splines(np.linspace(-1, 1, 10_001), size)
        assert columns.min() >= 0
        np.testing.assert_allclose(columns.sum(axis=1), 1.0, atol=1e-12)
        longest = np.sum(columns**2, axis=1).max()
        assert longest == pytest.approx(private.SPLINE_NORM_SQUARED, abs=1e-12)


def test_redundant_directions_are_orthogonal_to_every_row() -> None:
    vectors = CURVE.row_vectors(adversarial(CURVE, 1000, 4))
    assert CURVE.redundant().shape == (CURVE.dimension, 2)
    np.testing.assert_allclose(vectors @ CURVE.redundant(), 0.0, atol=1e-12)


def test_scaling_does_not_overflow_for_huge_bounds() -> None:
    values: Array = np.array([-np.inf, -1e308, 0.0, 1e308, np.nan])
    np.testing.assert_allclose(private.scaled(values, (-1e308, 1e308)), [-1, -1, 0, 1, 0])


@pytest.mark.parametrize("design", DESIGNS)
def test_a_design_survives_a_message(design: PrivateDesign) -> None:
    arrays, settings = design.pack()
    assert PrivateDesign.unpack(arrays, json.loads(json.dumps(settings))) == design


def test_columns_of_a_and_b_are_where_the_design_says() -> None:
    rows = Rows(np.zeros(1), np.array([[0.5, 5.5]]), np.array([[0.5, 4.5]]), np.ones((1, 1)))
    v = LINEAR.row_vectors(rows)[0]
    np.testing.assert_allclose(v[LINEAR.a], [1, 0, 0, 1], atol=1e-12)  # 1, x, x, w
    np.testing.assert_allclose(v[LINEAR.b], [1, 0, 0, 1], atol=1e-12)  # 1, z, z, w
    assert v[0] == -1.0
    assert len(CURVE.a) == 9 + 1
    assert len(CURVE.b) == 2 * 6 + 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"y": (1.0, 1.0)}, r"bounds of column y .* got \(1.0, 1.0\)"),
        ({"x": ((0.0, np.inf),)}, "bounds of column x"),
        ({"z": ()}, "treatment and an instrument"),
        ({"x": ((0.0, 1.0), (0.0, 1.0))}, "one treatment, got bounds of 2"),
        ({"size": 3}, "at least 4 splines"),
        ({"radius": -1.0}, "radius of private rows must be positive, got -1.0"),
    ],
)
def test_a_design_that_bounds_nothing_is_refused(change: dict[str, object], sentence: str) -> None:
    settings: dict[str, object] = {
        "kind": "curve", "y": (0.0, 1.0), "x": ((0.0, 1.0),), "z": ((0.0, 1.0),),
    }  # fmt: skip
    with pytest.raises(UsageError, match=sentence):
        PrivateDesign(**{**settings, **change})  # type: ignore[arg-type]


def test_other_columns_than_bounded_are_refused() -> None:
    rows = Rows(np.zeros(2), np.zeros((2, 1)), np.zeros((2, 1)), np.zeros((2, 0)))
    with pytest.raises(UsageError, match="bounds of 2 columns z, but the rows have 1"):
        CURVE.row_vectors(rows)
