"""Spline bases with fixed, data-free knots, so that every client builds the same columns.

Inputs are standardised columns: the knots lie on a fixed interval in units of standard deviations
and need nothing from the rows. Cubic B-splines are continued linearly outside the interval, and a
penalty on second differences of the coefficients (P-splines: Eilers and Marx, 1996) makes the
number of knots unimportant.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import BSpline

Array = NDArray[np.float64]

SPAN = 2.3
"""Half-width of the knot interval, in standard deviations of the input."""

DEGREE = 3


def spline(values: Array, size: int) -> Array:
    """Cubic B-splines of standardised values, with linear continuation outside +-`SPAN`.

    Parameters
    ----------
    values : (n,) standardised input.
    size : number of basis functions, at least 4.

    Returns
    -------
    (n, size) columns that sum to one in every row, so they contain the constant; they also
    contain every linear function of the input.
    """
    knots = _knots(size)
    inside = np.clip(values, -SPAN, SPAN)
    columns: Array = BSpline.design_matrix(inside, knots, DEGREE).toarray()
    outside = inside != values
    if outside.any():
        slope = BSpline(knots, np.eye(size), DEGREE).derivative()(inside[outside])
        columns[outside] += (values - inside)[outside, None] * slope
    return columns


def spline_slope(values: Array, size: int) -> Array:
    """Derivative of `spline` with respect to its input, (n, size)."""
    slope = BSpline(_knots(size), np.eye(size), DEGREE).derivative()
    return np.asarray(slope(np.clip(values, -SPAN, SPAN)), dtype=np.float64)


def roughness(size: int) -> Array:
    """Penalty matrix D'D on second differences of spline coefficients, (size, size).

    Scaled by size^3 / 1000 so that one value of the penalty weight means about the same
    smoothness, the integral of the squared second derivative, whatever the number of knots.
    """
    differences = np.diff(np.eye(size), 2, axis=0)
    return np.asarray(differences.T @ differences * (size**3 / 1000.0))


def powers(values: Array, degree: int) -> Array:
    """Columns v, v^2, ..., v^degree of standardised values, (n, degree); no constant."""
    return np.column_stack([values**k for k in range(1, degree + 1)])


def _knots(size: int) -> Array:
    step = 2 * SPAN / (size - DEGREE)
    return np.asarray(-SPAN + step * np.arange(-DEGREE, size + 1))
