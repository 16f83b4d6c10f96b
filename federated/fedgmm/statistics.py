"""What a client computes on its own rows when the server asks: sums over rows, nothing else.

Every function here maps rows and a small request to named arrays that add up over clients. The sum
over clients is therefore the same for every partition of the rows, up to rounding, and so is every
estimator built on it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from federated.fedgmm.bases import spline_slope
from federated.fedgmm.design import (
    Array,
    Arrays,
    Design,
    first_stage_columns,
    fitted_index,
    stack,
)
from federated.fedgmm.private.design import PrivateDesign, second_moments
from federated.fedgmm.rows import Rows

Settings = Mapping[str, Any]
Statistic = Callable[[Rows, Arrays, Settings], dict[str, Array]]


def count(rows: Rows, _: Arrays, __: Settings) -> dict[str, Array]:
    """Row count (1,) and column totals (d,)."""
    return {"n": np.array([float(len(rows))]), "total": stack(rows).sum(axis=0)}


def spread(rows: Rows, arrays: Arrays, _: Settings) -> dict[str, Array]:
    """Sums of squared deviations from the given `mean`, (d,).

    A second request after `count`, because squares of raw columns would lose digits.
    """
    return {"squares": ((stack(rows) - arrays["mean"]) ** 2).sum(axis=0)}


def moments(rows: Rows, arrays: Arrays, settings: Settings) -> dict[str, Array]:
    """Second moments of y, A and B of a design: everything that linear estimators need."""
    y, a, b = Design.unpack(arrays, settings).columns(rows)
    return {
        "n": np.array([float(len(y))]),
        "yy": np.array([y @ y]),
        "ay": a.T @ y,
        "aa": a.T @ a,
        "by": b.T @ y,
        "ba": b.T @ a,
        "bb": b.T @ b,
    }


def score_covariance(rows: Rows, arrays: Arrays, settings: Settings) -> dict[str, Array]:
    """Sum of b b' e^2 at the coefficients `theta` (eq. 10 of the paper), and of e^2."""
    y, a, b = Design.unpack(arrays, settings).columns(rows)
    scores = b * (y - a @ arrays["theta"])[:, None]
    return {"omega": scores.T @ scores, "ee": np.array([np.sum((y - a @ arrays["theta"]) ** 2)])}


def control_scores(rows: Rows, arrays: Arrays, settings: Settings) -> dict[str, Array]:
    """Sums behind the standard errors of the control function, both stages together.

    With r the columns of the second stage, e its residual, b those of the first stage and v its
    residual, the influence of a row is that of r e plus, through the estimated v, that of b v.
    Requests `theta` (k,), the second-stage coefficients; sends sums of r r' e^2, r b' e v,
    b b' v^2, and of r (dg/dv) b', with v in the units of the standardised treatment.
    """
    design = Design.unpack(arrays, settings)
    standardised = design.scale.apply(rows)
    y, r, _ = design.columns(rows)
    b = first_stage_columns(standardised)
    residual = fitted_index(design, standardised)[1]
    v = residual * design.residual_sd
    e = y - r @ arrays["theta"]
    control = slice(design.size, design.size + design.index_size - 1)
    slope = spline_slope(residual, design.index_size)[:, 1:] @ arrays["theta"][control]
    slope = slope / design.residual_sd
    re, bv = r * e[:, None], b * v[:, None]
    return {
        "second": re.T @ re,
        "cross": re.T @ bv,
        "first": bv.T @ bv,
        "link": (r * slope[:, None]).T @ b,
    }


def neural_moments(rows: Rows, arrays: Arrays, settings: Settings) -> dict[str, Array]:
    """Moments of a neural g and their Jacobian; see `neural.moments`."""
    from federated.fedgmm import neural  # torch, only where a network is asked for

    return neural.moments(rows, arrays, settings)


def private_moments(rows: Rows, arrays: Arrays, settings: Settings) -> dict[str, Array]:
    """Exact second moments of bounded rows, as `svec`, for a server trusted to add the noise."""
    return {"moments": second_moments(rows, PrivateDesign.unpack(arrays, settings))}


STATISTICS: Mapping[str, Statistic] = {
    "count": count,
    "spread": spread,
    "moments": moments,
    "score_covariance": score_covariance,
    "control_scores": control_scores,
    "neural_moments": neural_moments,
    "private_moments": private_moments,
}


def answer(name: str, rows: Rows, arrays: Arrays, settings: Settings) -> dict[str, Array]:
    """Compute the statistic called `name`; raises ValueError if it yields NaN or infinity."""
    sums = STATISTICS[name](rows, arrays, settings)
    for key, value in sums.items():
        if not np.isfinite(value).all():
            raise ValueError(f"the sum '{key}' of statistic '{name}' is not finite")
    return sums
