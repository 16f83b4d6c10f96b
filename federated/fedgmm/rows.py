"""What an instrumental-variable analysis reads: rows, their column names, their clients."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rows:
    """Observations of y = g(x) + w b + eps with E[eps | z, w] = 0.

    Attributes
    ----------
    y
        Outcome, shape (n,).
    x
        Endogenous treatments, shape (n, p).
    z
        Excluded instruments, shape (n, q).
    w
        Exogenous controls without the constant, shape (n, c); c may be 0.

    All are float64 in the units of the data. Raises ValueError when the shapes do not fit.
    """

    ARRAYS: ClassVar[tuple[str, ...]] = ("y", "x", "z", "w")

    y: Floats
    x: Floats
    z: Floats
    w: Floats

    def __post_init__(self) -> None:
        """Bring every array to float64 and hold the shapes against each other."""
        for name, ndim in (("y", 1), ("x", 2), ("z", 2), ("w", 2)):
            array = np.asarray(getattr(self, name), dtype=np.float64)
            if array.ndim != ndim or len(array) != len(self.y):
                raise ValueError(
                    f"{name} has shape {array.shape}; expected {ndim} dimension(s) "
                    f"and {len(self.y)} rows"
                )
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        """Return the number of rows, n."""
        return len(self.y)

    @property
    def scalars(self) -> "Rows":
        """The columns that are numbers: all of them."""
        return self

    def take(self, index: Index) -> "Rows":
        """Return the rows at `index` (positions, shape (m,)), as copies."""
        return Rows(self.y[index], self.x[index], self.z[index], self.w[index])


@dataclass(frozen=True)
class Names:
    """The column names behind `Rows`, in the order of its columns."""

    y: str
    x: tuple[str, ...]
    z: tuple[str, ...]
    w: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Truth:
    """The structural function behind simulated rows, and treatments to judge an estimate at.

    Attributes
    ----------
    g0
        Its name, such as "abs".
    function
        Maps treatments of shape (n,) to g0 of them, shape (n,).
    test_x
        Treatments drawn independently of the rows, shape (m,).
    """

    g0: str
    function: Callable[[Floats], Floats]
    test_x: Floats


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows with all that is known about them.

    Attributes
    ----------
    client
        Who holds each row, labels of shape (n,); None when the data do not say and the rows are
        to be partitioned.
    truth
        What generated them; None for real data.
    description
        One sentence for the report.
    warnings
        Sentences about what is unusual but usable.
    """

    rows: Rows
    names: Names
    client: NDArray[np.str_] | None
    truth: Truth | None
    description: str
    warnings: tuple[str, ...] = ()
