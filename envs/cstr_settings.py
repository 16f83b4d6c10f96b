"""What can be chosen about the stirred-tank reactor as a task: plant, set-points, noise, reward."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from envs.checks import choice, choices, need, number
from envs.cstr_plant import CSTRPlant
from envs.settings import PARTS

Input = Literal["CAi", "Ti", "Tci", "F"]
INPUTS: tuple[Input, ...] = ("CAi", "Ti", "Tci", "F")

PAPER = ("CA", "T", "TC", "b", "error")
"""The observation of arXiv 2505.21026; error is set-point less temperature, so both are seen."""

HIDDEN = ("CA", "T", "TC", "b")
"""The same without the set-point: what is wanted can only be learnt from demonstrations."""

OBSERVABLES: Mapping[str, tuple[float, float, float, float]] = {
    # name: lowest, highest; centre and width when scaled
    "CA": (0.0, 100.0, 1.13, 0.05),
    "T": (-273.16, 1000.0, 88.0, 2.0),
    "TC": (-273.16, 1000.0, 50.0, 10.0),
    "b": (-20.0, 50.0, 0.4, 0.1),
    "m": (0.0, 1.0, 0.25, 0.1),
    "setpoint": (-273.16, 1000.0, 88.0, 2.0),
    "error": (-1273.16, 1273.16, 0.0, 2.0),
    "integral": (-1e7, 1e7, 0.0, 500.0),
}


@dataclass(frozen=True)
class Noise:
    """Autoregressive noise of order 1 on the feed's concentration, drawn once a sample.

    Attributes
    ----------
    sd : its standard deviation, kmol/m3; 0 turns it off.
    correlation : between neighbouring samples, in [0, 1); 0 is white noise.
    """

    sd: float = 0.03
    correlation: float = 0.9

    def __post_init__(self) -> None:
        """Hold every attribute against its range."""
        number("sd of the noise", self.sd, 0.0, 1e3)
        number("correlation of the noise", self.correlation, 0.0, 1.0 - 1e-9)


QUIET = Noise(sd=0.0)


@dataclass(frozen=True)
class StepChange:
    """A lasting change of one input by `size` (in its unit), from sample `sample` (from 0) on."""

    input: Input
    sample: int
    size: float

    def __post_init__(self) -> None:
        """Hold every attribute against its range."""
        choice("input of a step change", self.input, INPUTS)
        number("sample of a step change", self.sample, 0, 1e9)
        need(math.isfinite(self.size), f"size of a step change is {self.size}, not a number.")


@dataclass(frozen=True)
class Reward:
    """Weights of the tracking reward, which is ours: the paper states none for the reactor.

        r = -(absolute |e| + square e^2 + move |dm|) + bonus 1(|e| < band)

    with e = set-point - T in C after the sample and dm the valve's move. Summed |e| is the IAE over
    the sample time; the square tells a near miss from a far one; the bonus rewards rest at the
    set-point; the move keeps the valve from chattering.

    Attributes
    ----------
    absolute, square, move, bonus : weights, none negative.
    band : C.
    trip : what a trip costs, once.
    """

    absolute: float = 0.5
    square: float = 0.025
    move: float = 0.5
    bonus: float = 0.5
    band: float = 0.05
    trip: float = 0.0

    def __post_init__(self) -> None:
        """Hold every attribute against its range."""
        for name in ("absolute", "square", "move", "bonus", "band", "trip"):
            number(f"{name} of the reward", getattr(self, name), 0.0, 1e12)


@dataclass(frozen=True)
class Safety:
    """Limits that hold whatever the action: the valve's rate, and temperatures that trip.

    Attributes
    ----------
    rate : the most that m moves in one sample.
    low, high : temperatures in C; outside them the episode terminates.
    """

    rate: float = math.inf
    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        """Hold every attribute against its range."""
        need(self.rate > 0, f"rate of the safety limits is {self.rate}; it must be positive.")
        need(self.low < self.high, f"The trip limits {self.low} and {self.high} are not in order.")


@dataclass(frozen=True)
class CSTRSettings:
    """The reactor as a task.

    Attributes
    ----------
    plant : one plant for all rows, or one for each row of a vector environment.
    start : temperature in C of the rest from which each episode begins.
    setpoints : one in C for each mode.
    mode : the mode of every episode; None draws it anew for each.
    samples : length of an episode, 10 s each; at its end it is truncated.
    noise, changes, reward, safety : see their classes.
    observe : names out of `OBSERVABLES`, in order; `PAPER` and `HIDDEN` are such lists.
        integral is the summed error in C s, m the valve's position, T the true temperature.
    scaled : whether observations are centred and divided by their usual size.
    action : "position" takes m in [0, 1]; "increment" takes its move in [-increment, increment].
    increment : see `action`.
    """

    plant: CSTRPlant | Sequence[CSTRPlant] = field(
        default_factory=CSTRPlant, metadata={PARTS: CSTRPlant}
    )
    start: float = 88.0
    setpoints: Sequence[float] = (90.0, 86.0)
    mode: int | None = None
    samples: int = 300
    noise: Noise = field(default_factory=Noise)
    changes: Sequence[StepChange] = field(default=(), metadata={PARTS: StepChange})
    observe: Sequence[str] = PAPER
    scaled: bool = False
    action: Literal["position", "increment"] = "position"
    increment: float = 0.1
    reward: Reward = field(default_factory=Reward)
    safety: Safety = field(default_factory=Safety)

    def __post_init__(self) -> None:
        """Hold every attribute against its range."""
        number("start", self.start, -273.0, 999.0)
        need(len(self.setpoints) > 0, "setpoints is empty; it must hold one for each mode.")
        for setpoint in self.setpoints:
            number("A set-point", setpoint, -273.0, 999.0)
        if self.mode is not None:
            number("mode", self.mode, 0, len(self.setpoints) - 1)
        number("samples", self.samples, 1, 1e9)
        choices("observe", self.observe, OBSERVABLES)
        choice("action", self.action, ("position", "increment"))
        number("increment", self.increment, 1e-6, 1.0)
