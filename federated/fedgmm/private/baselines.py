"""What stands beside a private estimate: the same without noise, and what else a user would do.

All but DP-2S-GD reads the rows without any protection, and DP-2S-GD spends a budget of its own.
They exist where the rows are no secret: in simulations, and with published data sets.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from federated.fedgmm import baselines, estimators
from federated.fedgmm.analyse import DIRECT_SMOOTHING, Predict, mean_of
from federated.fedgmm.config import CurveSettings
from federated.fedgmm.design import Array, Arrays
from federated.fedgmm.linear import Coefficient
from federated.fedgmm.private.analyse import PrivateFindings
from federated.fedgmm.private.design import second_moments, unsvec
from federated.fedgmm.private.fit import private_curve, private_linear
from federated.fedgmm.private.noisy_descent import private_descent
from federated.fedgmm.rows import Rows
from federated.fedgmm.statistics import answer
from federated.streams import stream


class Pooled:
    """All rows as one client, without Flower."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.labels = ["all rows"]

    def ask(
        self, statistic: str, arrays: Arrays, settings: Mapping[str, Any]
    ) -> list[dict[str, Array]]:
        """Answer as a client would."""
        return [answer(statistic, self.rows, arrays, settings)]


def rows_in(found: PrivateFindings) -> Rows:
    """The rows behind a private estimate, those of the clients in the sum."""
    parts = found.study.parts
    index = np.concatenate([parts[m.partition] for m in found.released.members])
    return found.study.dataset.rows.take(np.sort(index))


def curve_baselines(found: PrivateFindings, settings: CurveSettings) -> dict[str, Predict]:
    """Curves from the same rows: without noise, the sieve, and two without a curve or a cause."""
    rows, design = rows_in(found), found.design
    exact = private_curve(unsvec(second_moments(rows, design)), 0.0, design, len(rows))
    pooled = Pooled(rows)
    scale = estimators.federated_scale(pooled, 1, rows.z.shape[1])
    stage = estimators.first_stage(pooled, scale, settings.splines, settings.index_splines)
    sums = estimators.moment_sums(pooled, stage.design)
    sieve = estimators.sieve_curve(pooled, stage, sums, settings.smoothing)
    slope = baselines.pooled_2sls(rows)[0].value
    return {
        "without_noise": lambda x: exact.predict(x)[0],
        "sieve": mean_of(sieve),
        "direct": mean_of(estimators.direct_curve(sums, DIRECT_SMOOTHING)),
        "pooled_2sls": lambda x: scale.mean[0] + slope * (x - scale.mean[1]),
    }


def linear_baselines(found: PrivateFindings) -> dict[str, list[Coefficient]]:
    """Coefficients from the same rows, one a treatment; DP-2S-GD's have no standard error (NaN)."""
    rows, design = rows_in(found), found.design
    exact = private_linear(unsvec(second_moments(rows, design)), 0.0, design, len(rows))
    beside = {
        "without_noise": exact.coefficients(),
        "pooled_2sls": baselines.pooled_2sls(rows),
        "ols": baselines.pooled_ols(rows),
    }
    rho = found.released.ledger.rho
    if math.isfinite(rho):
        rng = stream(found.study.seed, "dp_2s_gd", found.study.name)
        values, _ = private_descent(rows, design, rho, rng)
        beside["dp_2s_gd"] = [Coefficient(float(v), math.nan) for v in values]
    return beside
