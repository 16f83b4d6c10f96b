"""Views: what of one variable a network is to predict from an image of another.

An image shows a hidden scalar that nobody has. A network that predicts much of what goes along with
it, the outcome and the other variable of the moment condition, must tell the scalar from the image
as far as that matters; its outputs are then columns that a linear method can stand on. Of numbers
the view is a spline basis, of images their leading principal components; both are standardised by
sums over clients and then fixed.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from federated.fedgmm import bases
from federated.fedgmm.images.files import Pixels
from federated.fedgmm.rows import Floats

SPLINES = 8
"""Splines of each number in a view."""

COMPONENTS = 10
"""Principal components of images in a view."""

SIDE = 8
"""Side to which images are averaged down before their components are taken."""


@dataclass(frozen=True)
class View:
    """A fixed map from a variable's values to columns of about unit variance.

    Attributes
    ----------
    kind : "splines" of standardised numbers, or "components" of images.
    mean : (d,) of the raw columns.
    matrix : (d, k), from centred raw columns to the view.
    """

    kind: Literal["splines", "components"]
    mean: tuple[float, ...]
    matrix: tuple[tuple[float, ...], ...]

    @property
    def size(self) -> int:
        """Number of columns, k."""
        return len(self.matrix[0])

    def columns(self, values: Floats | Pixels) -> Floats:
        """The view of standardised numbers (n, q) or of images (n, c, h, w), shape (n, k)."""
        return np.asarray((raw_columns(values) - np.array(self.mean)) @ np.array(self.matrix))

    def to_json(self) -> dict[str, Any]:
        """Plain form for a message."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "View":
        """Read the plain form back."""
        return cls(data["kind"], tuple(data["mean"]), tuple(tuple(r) for r in data["matrix"]))

    @classmethod
    def of_moments(
        cls, kind: Literal["splines", "components"], n: float, total: Floats, squares: Floats
    ) -> "View":
        """Standardise raw columns by their moments: total (d,) and second moments (d, d).

        Components are those of the largest variance, all in units of the first one's standard
        deviation, so that the network works most on what varies most.
        """
        mean = total / n
        covariance = squares / n - np.outer(mean, mean)
        if kind == "splines":
            sd = np.sqrt(np.maximum(np.diag(covariance), 1e-12))
            matrix = np.diag(1.0 / sd)
        else:
            values, vectors = np.linalg.eigh(covariance)
            leading = vectors[:, ::-1][:, :COMPONENTS]
            # An eigenvector's sign is arbitrary: make its largest entry positive.
            signs = np.sign(leading[np.abs(leading).argmax(axis=0), np.arange(leading.shape[1])])
            matrix = leading * signs / np.sqrt(max(float(values[-1]), 1e-12))
        return cls(kind, tuple(mean.tolist()), tuple(map(tuple, matrix.tolist())))


def raw_columns(values: Floats | Pixels) -> Floats:
    """Splines of standardised numbers, or averaged-down grey pixels between 0 and 1, (n, d)."""
    if values.dtype == np.uint8:
        return _small(np.asarray(values, np.uint8))
    return np.column_stack([bases.spline(np.asarray(c, float), SPLINES) for c in values.T])


def _small(images: NDArray[np.uint8]) -> Floats:
    """Grey images averaged down to at most `SIDE` x `SIDE`, flattened."""
    grey = images.astype(np.float64).mean(axis=1) / 255.0
    n, height, width = grey.shape
    rows, columns = max(1, height // SIDE), max(1, width // SIDE)
    cut = grey[:, : height // rows * rows, : width // columns * columns]
    blocks = cut.reshape(n, height // rows, rows, width // columns, columns)
    return np.asarray(blocks.mean(axis=(2, 4)).reshape(n, -1))
