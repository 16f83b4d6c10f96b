"""Partitions cover every row once, leave no client empty, and skew what they say they skew."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from cluster.errors import UsageError
from federated.partition import (
    Floats,
    Parts,
    _apportion,
    by_column,
    describe,
    even,
    quantile_skew,
    quantity,
)
from federated.streams import stream

Partition = Callable[[int, int, int], Parts]


def skewed(n: int, clients: int, seed: int) -> Parts:
    values = stream(seed, "values").normal(size=n)
    return quantile_skew(values, clients, 0.3, stream(seed), minimum=1)


METHODS: dict[str, Partition] = {
    "even": lambda n, clients, _: even(n, clients),
    "quantity": lambda n, clients, seed: quantity(n, clients, 0.3, stream(seed), minimum=1),
    "quantile_skew": skewed,
    "by_column": lambda n, clients, _: by_column(np.array([str(i % clients) for i in range(n)])),
}


def assert_partition(parts: Parts, n: int, clients: int, minimum: int = 1) -> None:
    assert len(parts) == clients
    assert min(len(part) for part in parts) >= minimum
    assert sorted(np.concatenate(parts).tolist()) == list(range(n))
    assert all(np.all(np.diff(part) > 0) for part in parts)
    assert all(part.dtype == np.int64 for part in parts)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("n", "clients"), [(7, 1), (7, 7), (11, 4), (1000, 10), (999, 100)])
def test_every_row_has_exactly_one_client(name: str, n: int, clients: int) -> None:
    for seed in range(5):
        assert_partition(METHODS[name](n, clients, seed), n, clients)


@pytest.mark.parametrize("alpha", [1e-3, 0.3, 1e4])
@pytest.mark.parametrize("minimum", [1, 5, 10])
def test_every_client_gets_the_minimum(alpha: float, minimum: int) -> None:
    values = stream(0).normal(size=103)
    for seed in range(5):
        assert_partition(quantity(103, 10, alpha, stream(seed), minimum), 103, 10, minimum)
        parts = quantile_skew(values, 10, alpha, stream(seed), minimum)
        assert_partition(parts, 103, 10, minimum)


def test_minimum_may_use_up_all_rows() -> None:
    assert describe(quantity(50, 10, 0.3, stream(0), minimum=5)).rows == (5,) * 10
    assert (
        describe(quantile_skew(np.arange(50.0), 10, 0.01, stream(0), minimum=5)).rows == (5,) * 10
    )


def test_quantity_sizes_follow_the_dirichlet_moments() -> None:
    n, clients, alpha, minimum = 2_000, 10, 0.3, 5
    left = n - minimum * clients
    shares = np.array(
        [
            (np.array(describe(quantity(n, clients, alpha, stream(seed), minimum)).rows) - minimum)
            / left
            for seed in range(4000)
        ]
    )
    first = shares[:, 0]  # one client, so that the 4000 draws are independent
    error = first.std() / np.sqrt(len(first))
    assert abs(first.mean() - 1 / clients) < 5 * error
    variance = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
    squares = (first - 1 / clients) ** 2
    assert abs(squares.mean() - variance) < 5 * squares.std() / np.sqrt(len(squares))


def test_quantity_skew_leaves_the_distribution_alone() -> None:
    n = 20_000
    values = np.arange(n, dtype=np.float64)
    for part in quantity(n, 10, 1.0, stream(2)):
        if len(part) > 30:
            deviation = values[part].mean() - values.mean()
            assert abs(deviation) < 5 * values.std() / np.sqrt(len(part))


def spread(values: Floats, parts: Parts) -> float:
    """Return the share of the variance that lies between clients, 0 to 1."""
    means = np.array([values[part].mean() for part in parts])
    sizes = np.array([len(part) for part in parts])
    return float(np.average((means - values.mean()) ** 2, weights=sizes) / values.var())


def test_quantile_skew_moves_the_column_and_alpha_says_how_far() -> None:
    values = stream(1).uniform(-3, 3, 20_000)
    strong, mild, none = (
        spread(values, quantile_skew(values, 10, alpha, stream(3))) for alpha in (0.05, 1.0, 1e4)
    )
    assert strong > 0.25
    assert 0.02 < mild < strong
    assert none < 0.001
    assert spread(values, quantity(20_000, 10, 0.3, stream(3))) < 0.01


def test_quantile_bins_are_dealt_whole_when_alpha_is_tiny() -> None:
    values = np.arange(1000.0)
    parts = quantile_skew(values, 4, 1e-6, stream(8), minimum=1)
    for start in range(0, 1000, 100):
        owners = [np.isin(np.arange(start + 5, start + 95), part).sum() for part in parts]
        # one owner a bin, but for rows moved to a client that would else be empty
        assert max(owners) >= 85


@pytest.mark.parametrize("ones", [20, 500, 980])
def test_binary_column_has_two_bins_however_rare_a_value(ones: int) -> None:
    values = np.zeros(1000)
    values[:ones] = 1.0
    apart = 0
    for seed in range(5):
        parts = quantile_skew(values, 5, 1e-6, stream(seed), minimum=1)
        held = np.array([[(values[part] == value).sum() for part in parts] for value in (0.0, 1.0)])
        # one owner a value, but for the row that each otherwise empty client was given
        assert np.all(held.max(axis=1) >= held.sum(axis=1) - 4)
        apart += int(np.unique(held.argmax(axis=1)).size == 2)
    assert apart > 0  # in one bin, both values would always go to the same owner


def test_a_seed_repeats_and_two_seeds_differ() -> None:
    for name in ("quantity", "quantile_skew"):
        first, again, other = (METHODS[name](200, 5, seed) for seed in (1, 1, 2))
        assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
        assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_rounding_goes_to_the_largest_remainders() -> None:
    assert _apportion(np.array([0.5, 0.3, 0.2]), 4).tolist() == [2, 1, 1]
    assert _apportion(np.array([0.5, 0.3, 0.2]), 0).tolist() == [0, 0, 0]


def test_by_column_orders_clients_as_unique_does() -> None:
    labels = np.array(["south", "north", "south", "west", "north"])
    assert [part.tolist() for part in by_column(labels)] == [[1, 4], [0, 2], [3]]


def test_even_keeps_the_order() -> None:
    assert [part.tolist() for part in even(7, 3)] == [[0, 1, 2], [3, 4], [5, 6]]


def test_describe() -> None:
    sizes = describe([np.arange(3), np.arange(3, 4), np.arange(4, 14)])
    assert (sizes.rows, sizes.smallest, sizes.median, sizes.largest) == ((3, 1, 10), 1, 3.0, 10)
    assert str(sizes) == "14 rows on 3 clients: 1 to 10, median 3"


VALUES = np.arange(10.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: even(3, 4), "4 clients are more than the 3 rows; ask for at most 3."),
        (lambda: quantity(3, 4, 0.3, stream(0)), "4 clients are more than the 3 rows"),
        (lambda: quantile_skew(VALUES, 11, 0.3, stream(0)), "11 clients are more than the 10 rows"),
        (
            lambda: quantity(10, 3, 0.3, stream(0), minimum=5),
            "3 clients with at least 5 rows each need 15 rows, there are 10; "
            "ask for at most 2 clients or a smaller minimum.",
        ),
        (lambda: even(3, 0), "There must be at least one client, got 0."),
        (lambda: quantity(9, 3, 0.0, stream(0), 1), "must be a number above 0, got 0.0."),
        (lambda: quantity(9, 3, np.nan, stream(0), 1), "must be a number above 0, got nan."),
        (lambda: quantity(9, 3, 1.0, stream(0), 0), "Each client needs at least one row"),
        (lambda: quantile_skew(VALUES, 2, 1.0, stream(0), bins=1), "at least 2 bins, got 1."),
        (lambda: quantile_skew(np.ones(20), 2, 1.0, stream(0)), "is constant"),
        (lambda: by_column(np.array([], dtype=str)), "no rows"),
    ],
)
def test_impossible_partitions(call: Callable[[], Parts], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        call()
