"""The plain Python estimators: right answers, the same for any clients, clear errors."""

import subprocess
import sys

import numpy as np
import pytest

from cluster.errors import UsageError
from federated import DeepGMM, LinearIV, SieveIV
from federated.fedgmm import scenarios, sources
from federated.fedgmm.rows import Rows


@pytest.fixture(scope="module")
def curve_rows() -> Rows:
    return scenarios.draw("abs", "code", 3000, 1).rows


def test_linear_iv_on_card() -> None:
    card = sources.card()
    r = card.rows
    found = LinearIV().fit(r.z, r.x, r.y, w=r.w, client=card.client)
    assert round(found.coefficients[0].value, 4) == 0.1315
    assert round(found.coefficients[0].se, 4) == 0.0550
    assert found.j is None
    assert found.first_stage_f[0] == pytest.approx(13.26, abs=0.01)


def test_sieve_iv_beats_regression_and_ignores_who_holds_what(curve_rows: Rows) -> None:
    r = curve_rows
    x = np.linspace(-3, 3, 25)
    clients = np.random.default_rng(0).integers(0, 7, len(r)).astype(str)
    g, se = SieveIV().fit(r.z, r.x, r.y, client=clients).predict(x)
    alone, _ = SieveIV().fit(r.z, r.x[:, 0], r.y).predict(x)
    np.testing.assert_allclose(g, alone, atol=1e-9)
    assert np.mean((g - np.abs(x)) ** 2) < 0.1
    assert (se > 0).all()


def test_deep_gmm_learns(curve_rows: Rows) -> None:
    r = curve_rows
    x = np.linspace(-3, 3, 25)
    options = {"batch": 256, "optimizer": "oadam", "lr_g": 0.005, "lr_f": 0.025}
    found = DeepGMM(seed=1, rounds=60, **options).fit(r.z, r.x, r.y)
    straight = np.polyval(np.polyfit(r.x[:, 0], r.y, 3), x)
    truth = np.abs(x)
    assert np.mean((found.predict(x) - truth) ** 2) < 0.5 * np.mean((straight - truth) ** 2)
    assert len(found.history) == 60


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros(5)}, "x has 5 rows, y has 10"),
        ({"x": np.zeros((10, 2))}, "one treatment, x has 2"),
        ({"z": np.full(10, np.nan)}, "z has NaN or infinite values, the first in row 0"),
        ({"client": ["a"] * 3}, "client has 3 entries"),
    ],
)
def test_arrays_that_cannot_be_used_get_one_sentence(
    change: dict[str, np.ndarray], message: str
) -> None:
    good = {"z": np.arange(10.0), "x": np.arange(10.0), "y": np.arange(10.0)}
    with pytest.raises(UsageError, match=message):
        SieveIV().fit(**{**good, **change})


def test_importing_the_package_loads_neither_torch_nor_flower() -> None:
    code = "import federated, sys; assert not {'torch', 'flwr', 'ray'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
