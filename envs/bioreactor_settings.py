"""What can be chosen about the bioreactor as a task: plant, modes, observation, move penalty."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from envs.bioreactor_plant import U_MAX, BioreactorPlant
from envs.checks import choices, need, number
from envs.settings import PARTS

TIMED = ("y1", "y2", "to_go")
"""The default observation: with the reward at the end, what is best depends on the time to go."""

PAPER = ("y1", "y2")
"""The observation of arXiv 2505.21026."""

OBSERVABLES: Mapping[str, tuple[float, float]] = {
    # name: lowest, highest
    "y1": (0.0, 100.0),
    "y2": (-1e4, 1e4),
    "to_go": (-1e-6, 1.0),
    "u1": (0.0, U_MAX),
    "u2": (0.0, U_MAX),
    "k": (0.0, 10.0),
}


@dataclass(frozen=True)
class BioreactorSettings:
    """The bioreactor as a task: 20 intervals, then the episode terminates.

    Attributes
    ----------
    plant : one plant for all rows, or one for each row of a vector environment.
    ks : k of each mode, in [0, 10].
    mode : the mode of every episode; None draws it anew for each.
    observe : names out of `OBSERVABLES`, in order; u1 and u2 are the last controls.
    move : weight of |du1| + |du2| in the reward of equation 32; the first controls are no move.
    """

    plant: BioreactorPlant | Sequence[BioreactorPlant] = field(
        default_factory=BioreactorPlant, metadata={PARTS: BioreactorPlant}
    )
    ks: Sequence[float] = (0.5, 0.7)
    mode: int | None = None
    observe: Sequence[str] = TIMED
    move: float = 0.01

    def __post_init__(self) -> None:
        """Hold every attribute against its range."""
        need(len(self.ks) > 0, "ks is empty; it must hold one for each mode.")
        for k in self.ks:
            number("k of the bioreactor", k, 0.0, 10.0)
        if self.mode is not None:
            number("mode", self.mode, 0, len(self.ks) - 1)
        choices("observe", self.observe, OBSERVABLES)
        number("move", self.move, 0.0, 1e12)
