"""A private release of second moments, whose rows are bounded before anybody sees them.

A row becomes a vector v of bounded columns: y, then the columns of A (structural) and B
(instruments), every distinct one once. Bounds are public: they come from what is known of the
variables, never from the rows. Values are clipped into them (NaN becomes the middle) and scaled to
[-1, 1], and the whole vector is clipped to the length R, so that |v| <= R whatever a row contains.

The release is S = sum of v v', sent as the upper triangle with off-diagonals times sqrt 2 (`svec`),
which keeps inner products. Neighbours differ in one row, and the number of rows n is public. Then

    |svec(vv') - svec(uu')|^2 = |v|^4 + |u|^4 - 2 (v'u)^2 <= 2 R^4,

with equality for orthogonal v and u of length R: the sensitivity is sqrt 2 R^2. Gaussian noise on
S makes everything computed from it private (Dwork, Talwar, Thakurta and Zhang, 2014, for private
second moments); the estimators are in `fit`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from scipy.interpolate import BSpline

from cluster.errors import UsageError
from federated.fedgmm.design import Array, Arrays
from federated.fedgmm.rows import Index, Rows

Bounds = tuple[float, float]
Kind = Literal["curve", "linear"]

DEGREE = 3

SPLINE_NORM_SQUARED = 0.5
"""Largest squared length of a row of uniform cubic B-splines, (1 + 16 + 1) / 36 at a knot."""

X_SIZE = 20
Z_SIZE = 10
"""Splines of the treatment and of each instrument, chosen on seeds 0 to 2 of the simulations."""


@dataclass(frozen=True)
class PrivateDesign:
    """What a client must know to bound its rows; all of it is public.

    Attributes
    ----------
    kind : "curve" for y = g(x) + w b with splines of x and of every z, or "linear".
    y, x, z, w : bounds (low, high) of every column, in the units of the data.
    size, instrument_size : number of cubic splines of x and of each z, at least 4; the linear
        form does not use them.
    radius : length that rows are clipped to. 0 stands for the largest that can occur, so that
        no row is clipped as a whole; a smaller one trades bias for less noise.

    Raises
    ------
    UsageError
        For bounds that are empty or not finite, a curve of several treatments, too few splines,
        no instrument, or a negative radius.
    """

    kind: Kind
    y: Bounds
    x: tuple[Bounds, ...]
    z: tuple[Bounds, ...]
    w: tuple[Bounds, ...] = ()
    size: int = X_SIZE
    instrument_size: int = Z_SIZE
    radius: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot bound a row, and fill in the radius."""
        for name, many in (("y", (self.y,)), ("x", self.x), ("z", self.z), ("w", self.w)):
            for low, high in many:
                if not (np.isfinite(low) and np.isfinite(high) and low < high):
                    raise UsageError(
                        f"The bounds of column {name} must be two finite numbers, the lower one "
                        f"first, got ({low}, {high})."
                    )
        if not self.x or not self.z:
            raise UsageError("A private analysis needs bounds of a treatment and an instrument.")
        if self.kind == "curve" and len(self.x) > 1:
            raise UsageError(f"A private curve has one treatment, got bounds of {len(self.x)}.")
        if min(self.size, self.instrument_size) <= DEGREE:
            raise UsageError(
                f"A private curve needs at least {DEGREE + 1} splines of each column, got "
                f"{self.size} and {self.instrument_size}."
            )
        if not (self.radius >= 0 and np.isfinite(self.radius)):
            raise UsageError(f"The radius of private rows must be positive, got {self.radius}.")
        largest = self.largest_norm
        object.__setattr__(self, "radius", min(self.radius or largest, largest))

    @property
    def largest_norm(self) -> float:
        """The largest length that bounded rows of this design can have."""
        if self.kind == "linear":
            return float(np.sqrt(2.0 + len(self.x) + len(self.z) + len(self.w)))
        return float(np.sqrt(1 + SPLINE_NORM_SQUARED * (1 + len(self.z)) + len(self.w)))

    @property
    def dimension(self) -> int:
        """Length d of a row vector."""
        if self.kind == "linear":
            return 2 + len(self.x) + len(self.z) + len(self.w)
        return 1 + self.size + len(self.z) * self.instrument_size + len(self.w)

    @property
    def sensitivity(self) -> float:
        """Largest L2 change of `svec` of S when one row is replaced, sqrt 2 R^2."""
        return float(np.sqrt(2.0) * self.radius**2)

    @property
    def a(self) -> Index:
        """Positions of A's columns in a row vector, (k,): [splines of x; w], or [1, x; w]."""
        first = 2 + len(self.x) if self.kind == "linear" else 1 + self.size
        return np.asarray(
            np.r_[1:first, self.dimension - len(self.w) : self.dimension], dtype=np.int64
        )

    @property
    def b(self) -> Index:
        """Positions of B's columns in a row vector, (m,): [splines of z; w], or [1, z; w]."""
        if self.kind == "linear":
            return np.asarray(np.r_[1, 2 + len(self.x) : self.dimension], dtype=np.int64)
        return np.arange(1 + self.size, self.dimension, dtype=np.int64)

    def redundant(self) -> Array:
        """Directions c with v'c = 0 for every possible row, (d, r): known to hold in S too.

        The splines of x and those of each z both add up to one.
        """
        if self.kind == "linear":
            return np.zeros((self.dimension, 0))
        directions = np.zeros((self.dimension, len(self.z)))
        directions[1 : 1 + self.size] = 1.0
        for i in range(len(self.z)):
            start = 1 + self.size + i * self.instrument_size
            directions[start : start + self.instrument_size, i] = -1.0
        return directions

    def pack(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays (none) and JSON settings of a message; `unpack` reads them back."""
        return {}, {"private_design": asdict(self)}

    @classmethod
    def unpack(cls, _: Arrays, settings: Mapping[str, Any]) -> "PrivateDesign":
        """Read a design out of a message."""
        plain = dict(settings["private_design"])
        plain["y"] = _bounds(plain["y"])
        for name in ("x", "z", "w"):
            plain[name] = tuple(_bounds(pair) for pair in plain[name])
        return cls(**plain)

    def row_vectors(self, rows: Rows) -> Array:
        """The bounded vectors of all rows, (n, d), each of length at most `radius`.

        Raises UsageError if the rows have other columns than the bounds.
        """
        for name, block, bounds in (
            ("x", rows.x, self.x),
            ("z", rows.z, self.z),
            ("w", rows.w, self.w),
        ):
            if block.shape[1] != len(bounds):
                raise UsageError(
                    f"There are bounds of {len(bounds)} columns {name}, but the rows have "
                    f"{block.shape[1]}."
                )
        y = scaled(rows.y, self.y)[:, None]
        x, z, w = _block(rows.x, self.x), _block(rows.z, self.z), _block(rows.w, self.w)
        if self.kind == "linear":
            vectors = np.hstack([y, np.ones_like(y), x, z, w])
        else:
            g = splines(x[:, 0], self.size)
            instruments = [splines(column, self.instrument_size) for column in z.T]
            vectors = np.hstack([y, g, *instruments, w])
        norm = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors * np.minimum(1.0, self.radius / np.maximum(norm, 1e-300)))


def second_moments(rows: Rows, design: PrivateDesign) -> Array:
    """`svec` of the sum of v v' over the rows, (d (d + 1) / 2,); it adds up over clients."""
    vectors = design.row_vectors(rows)
    return svec(vectors.T @ vectors)


def release(moments: Array, noise_sd: float, rng: np.random.Generator) -> Array:
    """S with Gaussian noise of this standard deviation on every entry of `svec`, (d, d)."""
    return unsvec(moments + rng.normal(0.0, 1.0, moments.shape) * noise_sd)


def svec(matrix: Array) -> Array:
    """Upper triangle of a symmetric (d, d), row by row, off-diagonals times sqrt 2.

    svec(A) @ svec(B) is the trace of A B, so lengths are Frobenius norms.
    """
    i, j = np.triu_indices(len(matrix))
    return np.asarray(matrix[i, j] * np.where(i == j, 1.0, np.sqrt(2.0)))


def unsvec(vector: Array) -> Array:
    """The symmetric matrix of an `svec`; ValueError if the length d (d + 1) / 2 fits no d."""
    d = round((np.sqrt(8.0 * len(vector) + 1) - 1) / 2)
    if d * (d + 1) // 2 != len(vector):
        raise ValueError(f"a vector of length {len(vector)} is no triangle of a square matrix")
    i, j = np.triu_indices(d)
    matrix = np.zeros((d, d))
    matrix[i, j] = matrix[j, i] = vector * np.where(i == j, 1.0, np.sqrt(0.5))
    return matrix


def scaled(values: Array, bounds: Bounds) -> Array:
    """Values clipped into the bounds and mapped to [-1, 1]; NaN becomes 0."""
    low, high = bounds
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    inside = np.clip(np.nan_to_num(values, nan=middle, posinf=high, neginf=low), low, high)
    return np.asarray(np.clip((inside - middle) / half, -1.0, 1.0))


def splines(values: Array, size: int) -> Array:
    """Uniform cubic B-splines on [-1, 1], (n, size), for values inside it.

    They are not negative and sum to one; the knots go on evenly beyond the interval, so that no
    row is longer than at an inner knot, sqrt(1/2).
    """
    inner = size - DEGREE
    knots = -1.0 + 2.0 / inner * np.arange(-DEGREE, size + 1)
    knots[DEGREE], knots[size] = -1.0, 1.0  # free of rounding, so that the ends lie inside
    return np.asarray(BSpline.design_matrix(values, knots, DEGREE).toarray(), dtype=np.float64)


def _block(columns: Array, bounds: tuple[Bounds, ...]) -> Array:
    done = [scaled(column, pair) for column, pair in zip(columns.T, bounds, strict=True)]
    return np.column_stack(done) if done else np.empty((len(columns), 0))


def _bounds(pair: Any) -> Bounds:
    low, high = pair
    return float(low), float(high)
