"""The jacketed stirred-tank reactor: its parameters, its equations, its points of rest.

    k = k0 exp(-E / (R T_abs)),  r = k CA^n,  T_abs = T + 273.16
    dCA/dt = F/V (CAi - CA) - r
    dT/dt  = F/V (Ti - T) - dHr r / (rho cp) - U A / (V rho cp) (T - TC)
    dTC/dt = U A / (Vc rho_c cpc) (T - TC) - Fc/Vc (TC - Tci)
    db/dt  = ((T - 80)/20 - b) / tauT
    Fc = Fcmax alpha^(-m),  m in [0, 1]

b is the transmitter's output, which reads 80 to 100 C as 0 to 1. The valve has equal-percentage
trim and is air-to-close: a larger m is less coolant and a warmer tank. The letters are those of
arXiv 2505.21026; the values are those of the stirred tank in Smith and Corripio's textbook, whose
k0 in m3/(s kmol) makes the reaction second order.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = Sequence[Any] | NDArray[np.float64]

GAS = 8314.39  # J/(kmol K)
KELVIN = 273.16
SAMPLE = 10.0  # s between samples
LOWEST, SPAN = 80.0, 20.0  # C; the transmitter's range
POSITIVE_NOT = ("dHr", "Ti", "Tci", "reaction_order")


@dataclass(frozen=True)
class CSTRPlant:
    """Parameters of the reactor; `dataclasses.replace` makes a changed plant.

    Attributes
    ----------
    F : feed, m3/s.
    CAi, Ti : concentration (kmol/m3) and temperature (C) of the feed.
    Tci : temperature of the coolant at the inlet, C.
    V, Vc : volumes of tank and jacket, m3.
    k0, E : reaction's factor, m3/(s kmol) or 1/s by its order, and activation energy, J/kmol.
    dHr : heat of reaction, J/kmol; negative is exothermic.
    U, A : heat transfer coefficient, W/(m2 K), and area, m2.
    rho, cp : of the tank's content, kmol/m3 and J/(kmol K).
    rho_c, cpc : of the coolant, kg/m3 and J/(kg K).
    Fcmax, alpha : coolant through the open valve, m3/s, and the valve's rangeability.
    tauT : time constant of the transmitter, s.
    reaction_order : 2, or 1.

    Raises
    ------
    ValueError : for a value that is not finite, not positive where it must be, or another order.
    """

    F: float = 0.0075
    CAi: float = 2.88
    Ti: float = 66.0
    Tci: float = 27.0
    V: float = 7.08
    Vc: float = 1.82
    k0: float = 0.0744
    E: float = 1.182e7
    dHr: float = -9.86e7
    U: float = 3550.0
    A: float = 5.4
    rho: float = 19.2
    cp: float = 1.815e5
    rho_c: float = 1000.0
    cpc: float = 4184.0
    Fcmax: float = 0.020
    alpha: float = 50.0
    tauT: float = 20.0
    reaction_order: int = 2

    def __post_init__(self) -> None:
        """Hold every parameter against its range."""
        for field in fields(self):
            value = getattr(self, field.name)
            if not math.isfinite(value):
                raise ValueError(f"{field.name} of the reactor is {value}, not a finite number.")
            if value <= 0 and field.name not in POSITIVE_NOT:
                raise ValueError(f"{field.name} of the reactor is {value}; it must be positive.")
        if self.reaction_order not in (1, 2):
            raise ValueError(f"reaction_order is {self.reaction_order}; it must be 1 or 2.")
        if self.alpha <= 1:
            raise ValueError(f"alpha of the valve is {self.alpha}; it must exceed 1.")

    @property
    def inputs(self) -> tuple[float, float, float, float]:
        """CAi, Ti, Tci, F, in the units of their attributes."""
        return self.CAi, self.Ti, self.Tci, self.F

    @property
    def tank_heat(self) -> float:
        """V rho cp, J/K."""
        return self.V * self.rho * self.cp

    @property
    def jacket_heat(self) -> float:
        """Vc rho_c cpc, J/K."""
        return self.Vc * self.rho_c * self.cpc

    def reaction_constant(self, temperature: float) -> float:
        """Return k at a temperature in C."""
        return self.k0 * math.exp(-self.E / (GAS * (temperature + KELVIN)))

    def derivatives(
        self,
        state: Vector,
        m: Any,
        inputs: Vector | None = None,
        exp: Callable[[Any], Any] = np.exp,
    ) -> tuple[Any, Any, Any, Any]:
        """Right-hand sides for CA, T, TC, b, per second.

        Parameters
        ----------
        state : CA (kmol/m3), T, TC (C), b; floats, arrays of one shape, or symbols.
        m : valve signal.
        inputs : CAi, Ti, Tci, F; the plant's own by default.
        exp : exponential for that kind of number, such as `casadi.exp`.
        """
        ca, t, tc, b = state
        cai, ti, tci, f = self.inputs if inputs is None else inputs
        rate = self.k0 * exp(-self.E / (GAS * (t + KELVIN))) * ca**self.reaction_order
        exchange = self.U * self.A * (t - tc)
        fc = self.Fcmax * exp(-m * math.log(self.alpha))
        return (
            f / self.V * (cai - ca) - rate,
            f / self.V * (ti - t)
            - self.dHr * rate / (self.rho * self.cp)
            - exchange / self.tank_heat,
            exchange / self.jacket_heat - fc / self.Vc * (tc - tci),
            (sensed(t) - b) / self.tauT,
        )


def sensed(temperature: Any) -> Any:
    """What the transmitter shows at rest, as a fraction of its span, at a temperature in C."""
    return (temperature - LOWEST) / SPAN


@dataclass(frozen=True)
class OperatingPoint:
    """A point of rest: CA in kmol/m3, T and TC in C, b and m as fractions, Fc in m3/s."""

    CA: float
    T: float
    TC: float
    b: float
    m: float
    Fc: float

    @property
    def state(self) -> NDArray[np.float64]:
        """CA, T, TC, b as an array (4,)."""
        return np.array([self.CA, self.T, self.TC, self.b])


def operating_point(plant: CSTRPlant, temperature: float) -> OperatingPoint:
    """Solve for the point of rest at a tank temperature in C.

    Given T, the balances are solved one after the other: the component balance for CA (linear or
    quadratic in it), the tank's energy balance for TC, the jacket's for Fc.

    Raises
    ------
    ValueError : where no valve position holds that temperature.
    """
    dilution = plant.F / plant.V
    k = plant.reaction_constant(temperature)
    if plant.reaction_order == 2:
        root = math.sqrt(dilution**2 + 4 * k * dilution * plant.CAi)
        ca = 2 * dilution * plant.CAi / (dilution + root)
    else:
        ca = dilution * plant.CAi / (dilution + k)
    rate = k * ca**plant.reaction_order
    released = (
        plant.F * plant.rho * plant.cp * (plant.Ti - temperature) - plant.dHr * plant.V * rate
    )
    tc = temperature - released / (plant.U * plant.A)
    span = plant.rho_c * plant.cpc * (tc - plant.Tci)
    fc = released / span if span else math.inf
    if not plant.Fcmax / plant.alpha <= fc <= plant.Fcmax:
        raise ValueError(
            f"No valve position holds the reactor at {temperature:g} C: it would take a coolant "
            f"flow of {fc:.4g} m3/s, and the valve gives {plant.Fcmax / plant.alpha:.4g} to "
            f"{plant.Fcmax:.4g}."
        )
    m = -math.log(fc / plant.Fcmax) / math.log(plant.alpha)
    return OperatingPoint(ca, temperature, tc, sensed(temperature), m, fc)


def gain(plant: CSTRPlant, temperature: float, step: float = 1e-3) -> float:
    """Return dT/dm at rest, C per unit of m, by a central difference of `operating_point`."""
    above = operating_point(plant, temperature + step).m
    below = operating_point(plant, temperature - step).m
    return 2 * step / (above - below)
