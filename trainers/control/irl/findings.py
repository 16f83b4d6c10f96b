"""What was found of a reward, seed by seed, before it is put into words?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from envs.control import Controller
from trainers.control.closed_loop import respond
from trainers.control.imitate import findings as imitate
from trainers.control.irl.cases import changed
from trainers.control.irl.look import Look
from trainers.control.irl.settings import Change
from trainers.control.plants import PlantSettings
from trainers.control.record import JUDGED
from trainers.control.scores import MEASURES, measured

FRESH, IRL = "fresh", "irl"
"""Names of the policy from the frozen reward, and of the one beside which the reward was learnt."""


@dataclass
class Findings(imitate.Findings):
    """Lists have an entry a seed.

    Attributes
    ----------
    looks : each mode's, for the reactor.
    transfers : by change, then by controller: (seeds, modes), the plant's main measure under noise.
    """

    looks: list[list[Look]] = field(default_factory=list)
    transfers: dict[str, dict[str, list[list[float]]]] = field(default_factory=dict)

    def add_transfer(
        self,
        plant: PlantSettings,
        change: Change,
        controllers: Mapping[str, Sequence[Controller]],
        rows: int,
        seed: int,
    ) -> None:
        """Run a seed's controllers on the changed plant, all in the same noise."""
        moved, keywords = changed(plant, change)
        main = MEASURES[plant.kind][0].name
        kept = self.transfers.setdefault(change.name, {})
        for name, each in controllers.items():
            ran = respond(moved, each, rows, JUDGED + seed, **keywords)
            values = [float(measured(moved, r.noisy)[main].mean()) for r in ran]
            kept.setdefault(name, []).append(values)

    def ratios(self, plant: PlantSettings, own: str) -> dict[str, NDArray[np.float64]]:
        """By change: a controller's measure over the best transferred clone's, (seeds, modes)."""
        best = np.minimum if MEASURES[plant.kind][0].better == "lower" else np.maximum
        return {
            change: np.array(kept[own]) / best(kept["clone"], kept["plain clone"])
            for change, kept in self.transfers.items()
        }
