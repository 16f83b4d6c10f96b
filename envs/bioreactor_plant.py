"""The fed-batch bioreactor: its parameters and equations, and their exact solution in an interval.

    dy1/dt = -(u1 + a u1^2) y1 + d u2
    dy2/dt = (b u1 - k u2) y1,   y(0) = (1, 0),  t in [0, 1]

y1 is the substrate, y2 the product; u1 and u2 lie in [0, 5] and are constant over each of 20
intervals. Equation 30 of arXiv 2505.21026 has a = 0.5, b = d = 1, and k = 0.5 or 0.7 by its mode.

With c = u1 + a u1^2 and u constant, y1 is an exponential and y2 follows its integral:

    y1(t + h) = e^(-c h) y1 + d u2 h phi1(c h)
    y2(t + h) = y2 + (b u1 - k u2) (y1 h phi1(c h) + d u2 h^2 phi2(c h))

with phi1(z) = (1 - e^-z) / z and phi2(z) = (z - 1 + e^-z) / z^2, so that no step is approximate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from envs.checks import number

INTERVALS = 20
WIDTH = 1.0 / INTERVALS
U_MAX = 5.0
Y_START = (1.0, 0.0)


@dataclass(frozen=True)
class BioreactorPlant:
    """Parameters of the bioreactor besides k, which is its mode's.

    Attributes
    ----------
    a : how fast u1^2 uses up y1, in [0, 1].
    b : yield of y2 from u1, in [0, 10].
    d : how much u2 feeds y1, in [0, 10].

    Raises
    ------
    ValueError : outside those ranges, over which the exact solution's series has been checked.
    """

    a: float = 0.5
    b: float = 1.0
    d: float = 1.0

    def __post_init__(self) -> None:
        """Hold every parameter against its range."""
        number("a of the bioreactor", self.a, 0.0, 1.0)
        number("b of the bioreactor", self.b, 0.0, 10.0)
        number("d of the bioreactor", self.d, 0.0, 10.0)

    def derivatives(self, y: Sequence[Any], u: Sequence[Any], k: Any) -> tuple[Any, Any]:
        """Right-hand sides for y1 and y2 under controls u1, u2; numbers, arrays or symbols."""
        y1, u1, u2 = y[0], u[0], u[1]
        return -(u1 + self.a * u1 * u1) * y1 + self.d * u2, (self.b * u1 - k * u2) * y1


def exact_step(
    plant: BioreactorPlant, y: Sequence[Any], u: Sequence[Any], k: Any, h: float = WIDTH
) -> tuple[Any, Any]:
    """Return y1, y2 after h with u constant; numbers, arrays or symbols.

    The phi functions are summed as power series, which has no 0/0 at u1 = 0; to 1e-15 relative for
    c h up to 1.5, which is what u1 = 5 and a = 1 make of h = 1/20.
    """
    u1, u2 = u[0], u[1]
    z = (u1 + plant.a * u1 * u1) * h
    phi2, term = 0.5, 0.5
    for n in range(3, 24):
        term = -term * z / n
        phi2 = phi2 + term
    phi1 = 1.0 - z * phi2
    feed = plant.d * u2 * h
    area = h * (y[0] * phi1 + feed * phi2)
    return y[0] * (1.0 - z * phi1) + feed * phi1, y[1] + (plant.b * u1 - k * u2) * area
