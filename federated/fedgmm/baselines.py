"""What a user would otherwise do: pool the rows, ignore endogeneity, or stay alone.

The pooled baselines read all rows directly, by least squares and not through moment sums, so that
they are also a second route to the federated figures.
"""

import numpy as np

from federated.fedgmm import sieve
from federated.fedgmm.bases import powers
from federated.fedgmm.design import Array
from federated.fedgmm.estimators import POLYNOMIAL_DEGREE, Curve, Sums
from federated.fedgmm.linear import Coefficient, Estimate, inverse, rank, two_stage
from federated.fedgmm.rows import Rows


def pooled_ols(rows: Rows) -> list[Coefficient]:
    """Least squares of y on x and w with all rows in one place, one entry a treatment."""
    return _least_squares(rows, rows.x)


def pooled_2sls(rows: Rows) -> list[Coefficient]:
    """Two-stage least squares with all rows in one place, n - k degrees of freedom."""
    one = np.ones((len(rows), 1))
    instruments = np.hstack([one, rows.z, rows.w])
    fitted = instruments @ np.linalg.lstsq(instruments, rows.x, rcond=None)[0]
    return _least_squares(rows, fitted)


def _least_squares(rows: Rows, regressors: Array) -> list[Coefficient]:
    """Coefficients on `regressors` and w; residuals are taken with the actual treatments."""
    n, p = rows.x.shape
    one = np.ones((n, 1))
    used = np.hstack([regressors, one, rows.w])
    theta, _, found, _ = np.linalg.lstsq(used, rows.y, rcond=None)
    residual = rows.y - np.hstack([rows.x, one, rows.w]) @ theta
    variance = residual @ residual / (n - found)
    se = np.sqrt(np.diag(np.linalg.pinv(used.T @ used))[:p] * variance)
    return [Coefficient(float(b), float(s)) for b, s in zip(theta[:p], se, strict=True)]


def pooled_polynomial(rows: Rows, x: Array) -> Array:
    """Polynomial 2SLS of one treatment with all rows in one place, evaluated at x (n,)."""
    mean, sd = rows.x[:, 0].mean(), rows.x[:, 0].std()
    z = (rows.z - rows.z.mean(axis=0)) / rows.z.std(axis=0)
    one = np.ones((len(rows), 1))
    w = rows.w - rows.w.mean(axis=0)
    a = np.hstack([one, powers((rows.x[:, 0] - mean) / sd, POLYNOMIAL_DEGREE), w])
    b = np.hstack([one, *[powers(column, POLYNOMIAL_DEGREE) for column in z.T], w])
    fitted = b @ np.linalg.lstsq(b, a, rcond=None)[0]
    theta = np.linalg.lstsq(fitted, rows.y, rcond=None)[0]
    standardised = powers((x - mean) / sd, POLYNOMIAL_DEGREE)
    return np.asarray(theta[0] + standardised @ theta[1 : 1 + POLYNOMIAL_DEGREE])


def local_estimates(sums: Sums) -> list[Estimate | None]:
    """2SLS of each client alone; None where its own rows do not identify it."""
    return [two_stage(own) if _identified(own) else None for own in sums.each]


def local_curves(sums: Sums, smoothing: float) -> list[Curve]:
    """The sieve of each client alone; its penalty makes it exist for any number of rows."""
    penalty = sieve.curve_penalty(sums.design.size, sums.design.scale.controls, smoothing)
    return [Curve(sums.design, sieve.sieve_gmm(own, penalty)) for own in sums.each]


def _identified(own: dict[str, Array]) -> bool:
    """Whether the instruments move every column of A that varies at this client."""
    n = own["n"][0]
    projected = own["ba"].T @ inverse(own["bb"]) @ own["ba"]
    varying = own["aa"][1, 1] - own["aa"][0, 1] ** 2 / n > 1e-9 * n
    return bool(n > rank(own["aa"]) and varying and rank(projected) == rank(own["aa"]))
