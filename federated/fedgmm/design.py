"""From a client's rows to the columns A (structural) and B (instruments) of one estimator.

A `Design` is the small, public recipe for those columns: the server sends it, every client builds
its own columns from its own rows, and only sums over rows travel back. In all designs the model is
y = A theta + eps with E[B' eps] = 0, in standardised units.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from federated.fedgmm import bases
from federated.fedgmm.rows import Rows

Array = NDArray[np.float64]
Arrays = Mapping[str, Array]
Kind = Literal["linear", "first_stage", "polynomial", "sieve", "control"]


def stack(rows: Rows) -> Array:
    """All columns side by side in the order y, x, z, w, shape (n, d)."""
    return np.column_stack([rows.y, rows.x, rows.z, rows.w])


@dataclass(frozen=True)
class Scale:
    """Means and standard deviations of all columns in the order y, x, z, w, (d,) each."""

    n: int
    mean: Array
    sd: Array
    treatments: int
    instruments: int

    @property
    def controls(self) -> int:
        """Number of control columns."""
        return len(self.mean) - 1 - self.treatments - self.instruments

    def to_json(self) -> dict[str, Any]:
        """Plain form for the settings of a message; floats keep all their digits."""
        return {**asdict(self), "mean": self.mean.tolist(), "sd": self.sd.tolist()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Scale":
        """Read the plain form back."""
        return cls(**{**data, "mean": np.array(data["mean"]), "sd": np.array(data["sd"])})

    def apply(self, rows: Rows) -> Rows:
        """Return the rows in standardised units."""
        block = (stack(rows) - self.mean) / self.sd
        p, q = rows.x.shape[1], rows.z.shape[1]
        return Rows(
            y=block[:, 0], x=block[:, 1 : 1 + p], z=block[:, 1 + p : 1 + p + q],
            w=block[:, 1 + p + q :],
        )  # fmt: skip


@dataclass(frozen=True)
class Design:
    """What a client must know to build its columns.

    Attributes
    ----------
    kind : which columns.
    scale : federated means and standard deviations.
    size : number of splines in x (or degree of a polynomial).
    index_size : number of splines in the fitted first stage.
    first_stage : coefficients of E[x | z] on the first stage's columns; empty if not used.
    index_mean, index_sd, residual_sd : of that fit and of its residual, to standardise them.
    """

    kind: Kind
    scale: Scale
    size: int = 0
    index_size: int = 0
    first_stage: Array | None = None
    index_mean: float = 0.0
    index_sd: float = 1.0
    residual_sd: float = 1.0

    def columns(self, rows: Rows) -> tuple[Array, Array, Array]:
        """Return y (n,), A (n, k) and B (n, m) in standardised units."""
        return _BUILDERS[self.kind](self, self.scale.apply(rows))

    def curve_columns(self, x: Array) -> Array:
        """The part of A that carries g(x), for x (n,) in original units; other columns are 0."""
        standardised = (x - self.scale.mean[1]) / self.scale.sd[1]
        if self.kind == "polynomial":
            g = np.column_stack([np.ones(len(x)), bases.powers(standardised, self.size)])
        else:
            g = bases.spline(standardised, self.size)
        rest = (self.index_size - 1 if self.kind == "control" else 0) + self.scale.controls
        return np.column_stack([g, np.zeros((len(x), rest))])

    def pack(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays and settings of a message; `unpack` reads them back."""
        arrays = {} if self.first_stage is None else {"first_stage": self.first_stage}
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        del plain["first_stage"]
        return arrays, {"design": {**plain, "scale": self.scale.to_json()}}

    @classmethod
    def unpack(cls, arrays: Arrays, settings: Mapping[str, Any]) -> "Design":
        """Read a design out of a message."""
        plain = dict(settings["design"])
        plain["scale"] = Scale.from_json(plain["scale"])
        return cls(**plain, first_stage=arrays.get("first_stage"))


FIRST_STAGE_SIZE = 8
"""Splines per instrument in the first stage E[x | z]."""


def first_stage_columns(standardised: Rows) -> Array:
    """Additive splines of each instrument, then the controls: [1, s(z1), ..., s(zq), w]."""
    splines = [bases.spline(z, FIRST_STAGE_SIZE)[:, 1:] for z in standardised.z.T]
    return np.column_stack([np.ones(len(standardised)), *splines, standardised.w])


def fitted_index(design: Design, standardised: Rows) -> tuple[Array, Array]:
    """Standardised fit of x from z alone, and standardised residual of x given z and w.

    The index leaves the controls out: only the excluded instruments may move it.
    """
    if design.first_stage is None:
        raise ValueError(f"a design of kind '{design.kind}' needs a first stage")
    columns = first_stage_columns(standardised)
    excluded = columns.shape[1] - standardised.w.shape[1]
    index = columns[:, :excluded] @ design.first_stage[:excluded]
    residual = standardised.x[:, 0] - columns @ design.first_stage
    return (index - design.index_mean) / design.index_sd, residual / design.residual_sd


def _linear(_: Design, rows: Rows) -> tuple[Array, Array, Array]:
    one = np.ones(len(rows))
    return rows.y, np.column_stack([one, rows.x, rows.w]), np.column_stack([one, rows.z, rows.w])


def _first_stage(_: Design, rows: Rows) -> tuple[Array, Array, Array]:
    columns = first_stage_columns(rows)
    return rows.x[:, 0], columns, columns


def _polynomial(design: Design, rows: Rows) -> tuple[Array, Array, Array]:
    one = np.ones((len(rows), 1))
    x = bases.powers(rows.x[:, 0], design.size)
    z = [bases.powers(column, design.size) for column in rows.z.T]
    return rows.y, np.hstack([one, x, rows.w]), np.hstack([one, *z, rows.w])


def _sieve(design: Design, rows: Rows) -> tuple[Array, Array, Array]:
    index, _ = fitted_index(design, rows)
    g = bases.spline(rows.x[:, 0], design.size)
    # The instruments contain the first stage's own columns, so that the index lies in their span.
    # Otherwise what is left of it would be the noise of its fit, which is correlated with eps.
    shaped = bases.spline(index, design.index_size)[:, 1:]
    return rows.y, np.hstack([g, rows.w]), np.hstack([first_stage_columns(rows), shaped])


def _control(design: Design, rows: Rows) -> tuple[Array, Array, Array]:
    _, residual = fitted_index(design, rows)
    g = bases.spline(rows.x[:, 0], design.size)
    control = bases.spline(residual, design.index_size)[:, 1:]
    columns = np.hstack([g, control, rows.w])
    return rows.y, columns, columns


_BUILDERS: Mapping[Kind, Callable[[Design, Rows], tuple[Array, Array, Array]]] = {
    "linear": _linear,
    "first_stage": _first_stage,
    "polynomial": _polynomial,
    "sieve": _sieve,
    "control": _control,
}
