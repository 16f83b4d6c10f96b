"""A client's rows where treatment, instrument or both are images."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from federated.fedgmm.images.files import Pixels
from federated.fedgmm.rows import Floats, Index, Rows


@dataclass(frozen=True, eq=False)
class ImageRows:
    """Observations of y = g(x) + eps with E[eps | z] = 0.

    Attributes
    ----------
    y
        Outcome, shape (n,).
    x
        Treatment: images, uint8 (n, channels, height, width), or a number, float64 (n, 1).
    z
        Instruments: images, or numbers, float64 (n, q).

    Raises ValueError when the lengths do not fit.
    """

    ARRAYS: ClassVar[tuple[str, ...]] = ("y", "x", "z")

    y: Floats
    x: Floats | Pixels
    z: Floats | Pixels

    def __post_init__(self) -> None:
        """Hold the lengths against each other."""
        if not len(self.y) == len(self.x) == len(self.z):
            raise ValueError(f"y, x and z have {len(self.y)}, {len(self.x)} and {len(self.z)} rows")

    def __len__(self) -> int:
        """Return the number of rows, n."""
        return len(self.y)

    @property
    def scalars(self) -> Rows:
        """The columns that are numbers; images count as no column."""
        none = np.empty((len(self), 0))
        x, z = (none if v.dtype == np.uint8 else np.asarray(v, float) for v in (self.x, self.z))
        return Rows(self.y, x, z, none)

    def take(self, index: Index) -> "ImageRows":
        """Return the rows at `index` (positions, shape (m,)), as copies."""
        return ImageRows(self.y[index], self.x[index], self.z[index])
