"""Which client holds which rows: every function returns a partition of the row numbers.

A partition is a list with one sorted array of row numbers a client; together the arrays hold each
of 0 .. n-1 once, and none is empty.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UsageError

Floats = NDArray[np.float64]
Index = NDArray[np.int64]
Parts = list[Index]


def by_column(labels: NDArray[np.str_]) -> Parts:
    """Give each distinct label its rows; clients stand in the order of `np.unique(labels)`.

    Raises UsageError when there are no rows.
    """
    if len(labels) == 0:
        raise UsageError("There are no rows to give to clients.")
    _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return _sorted(np.split(np.argsort(codes, kind="stable"), np.cumsum(counts)[:-1]))


def even(n: int, clients: int) -> Parts:
    """Cut the rows, in their order, into runs whose lengths differ by at most one."""
    _check(n, clients, 1)
    return _sorted(np.array_split(np.arange(n), clients))


def quantity(
    n: int, clients: int, alpha: float, rng: np.random.Generator, minimum: int = 5
) -> Parts:
    """Deal rows at random in amounts that differ: clients share one distribution, not one size.

    Sizes are `minimum` plus a share p ~ Dirichlet(alpha, ..., alpha) of the n - minimum * clients
    rows left (the partition of arXiv 2505.21012, there with alpha 0.3 and minimum 5), rounded so
    that they add up to n; the rows are a random permutation.

    Parameters
    ----------
    n
        Number of rows.
    clients
        Number of clients.
    alpha
        Concentration, above 0; the smaller, the more unequal.
    rng
        Source of the shares and the permutation.
    minimum
        Rows that every client gets at least, 1 or more.

    Raises
    ------
    UsageError
        When the rows do not suffice, or alpha or minimum is out of range.
    """
    _check(n, clients, minimum, alpha)
    shares = rng.dirichlet(np.full(clients, alpha))
    sizes = minimum + _apportion(shares, n - minimum * clients)
    return _sorted(np.split(rng.permutation(n), np.cumsum(sizes)[:-1]))


def quantile_skew(
    values: Floats,
    clients: int,
    alpha: float,
    rng: np.random.Generator,
    minimum: int = 5,
    bins: int = 10,
) -> Parts:
    """Deal rows so that clients differ in the distribution of one column.

    The column is cut at its quantiles into `bins` bins of about equal size (a column with no more
    distinct values than that has one bin a value), and each bin is dealt to the clients in its own
    shares p ~ Dirichlet(alpha, ..., alpha). A client left with fewer than `minimum` rows then gets
    random rows of the client that has the most.

    Parameters
    ----------
    values
        The column, shape (n,), finite: an instrument, or a treatment. Skew on a treatment
        conditions on an endogenous variable, so that the moment E[f(z) eps] no longer vanishes
        within a client, only over all of them.
    clients, alpha, rng, minimum
        As in `quantity`.
    bins
        Number of quantile bins, 2 or more.

    Raises
    ------
    UsageError
        When the rows do not suffice, a number is out of range, or the column is constant.
    """
    _check(len(values), clients, minimum, alpha)
    codes = _bins(values, bins)
    owner = np.empty(len(values), dtype=np.int64)
    for code in np.unique(codes):
        members = rng.permutation(np.flatnonzero(codes == code))
        sizes = _apportion(rng.dirichlet(np.full(clients, alpha)), len(members))
        owner[members] = np.repeat(np.arange(clients), sizes)
    _top_up(owner, clients, minimum, rng)
    return _sorted([np.flatnonzero(owner == client) for client in range(clients)])


@dataclass(frozen=True)
class Sizes:
    """How many rows the clients hold."""

    rows: tuple[int, ...]  # of each client, in the order of the partition
    smallest: int
    median: float
    largest: int

    def __str__(self) -> str:
        """Return the sentence that a report prints."""
        return (
            f"{sum(self.rows)} rows on {len(self.rows)} clients: "
            f"{self.smallest} to {self.largest}, median {self.median:g}"
        )


def describe(parts: Sequence[Index]) -> Sizes:
    """Count the rows of each client of a partition."""
    rows = tuple(len(part) for part in parts)
    return Sizes(rows, min(rows), float(np.median(rows)), max(rows))


def _check(n: int, clients: int, minimum: int, alpha: float = 1.0) -> None:
    if clients < 1:
        raise UsageError(f"There must be at least one client, got {clients}.")
    if minimum < 1:
        raise UsageError(f"Each client needs at least one row, got minimum = {minimum}.")
    if not 0.0 < alpha < np.inf:
        raise UsageError(f"The Dirichlet concentration must be a number above 0, got {alpha}.")
    if clients > n:
        raise UsageError(f"{clients} clients are more than the {n} rows; ask for at most {n}.")
    if clients * minimum > n:
        raise UsageError(
            f"{clients} clients with at least {minimum} rows each need {clients * minimum} rows, "
            f"there are {n}; ask for at most {n // minimum} clients or a smaller minimum."
        )


def _apportion(shares: Floats, total: int) -> Index:
    """Round shares of `total` to whole numbers that add up to it (largest remainders)."""
    exact = shares * total
    whole = np.floor(exact).astype(np.int64)
    largest_first = np.argsort(whole - exact, kind="stable")
    whole[largest_first[: total - int(whole.sum())]] += 1
    return whole


def _bins(values: Floats, bins: int) -> Index:
    """Return the bin of each value, 0 to at most bins - 1."""
    if bins < 2:
        raise UsageError(f"Skew on a column needs at least 2 bins, got {bins}.")
    levels = np.unique(values)
    if len(levels) == 1:
        raise UsageError(
            "The column to skew the clients on is constant, so it has no quantiles; "
            "choose another column, or quantity skew."
        )
    if len(levels) <= bins:
        return np.searchsorted(levels, values)
    edges = np.unique(np.quantile(values, np.linspace(0.0, 1.0, bins + 1)[1:-1]))
    return np.searchsorted(edges, values)


def _top_up(owner: Index, clients: int, minimum: int, rng: np.random.Generator) -> None:
    """Move rows, in place, from the largest clients to those below `minimum`."""
    sizes = np.bincount(owner, minlength=clients)
    for client in range(clients):
        while sizes[client] < minimum:
            donor = int(np.argmax(sizes))
            # the largest holds more than minimum as long as one holds less, since n >= clients * m
            count = min(minimum - sizes[client], sizes[donor] - minimum)
            moved = rng.choice(np.flatnonzero(owner == donor), size=count, replace=False)
            owner[moved] = client
            sizes[client] += count
            sizes[donor] -= count


def _sorted(parts: Sequence[Index]) -> Parts:
    return [np.sort(part).astype(np.int64) for part in parts]
