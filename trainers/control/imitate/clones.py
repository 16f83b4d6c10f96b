"""Which controllers come of cloning one seed's share of the demonstrations?"""

from dataclasses import dataclass

import numpy as np

from cluster.run import Run
from envs.control import Controller
from trainers.control.closed_loop import Learnt
from trainers.control.imitate import judge
from trainers.control.imitate.clone import Cloning
from trainers.control.imitate.config import Config
from trainers.control.imitate.data import Demonstrations
from trainers.control.imitate.train import train
from trainers.control.inference import PooledEncoder
from trainers.control.plants import PlantSettings
from trainers.control.record import JUDGED, NO_Z, controller
from trainers.control.trajectories import Singles


@dataclass(frozen=True)
class Clones:
    """A plain clone and one with modes, of the same demonstrations.

    Attributes
    ----------
    plain, conditional : the clones.
    learnt, held : demonstrations that they learnt from, and those held out.
    codes : (modes, c), z of each mode, by true modes where known, else by trying on the plant;
        without a plant to try on, the code of mode i is the i-th.
    """

    plain: Cloning
    conditional: Cloning
    learnt: Demonstrations
    held: Demonstrations
    codes: Singles

    @property
    def q(self) -> PooledEncoder:
        """The inference network."""
        assert self.conditional.inference is not None
        return self.conditional.inference

    def gain(self) -> float:
        """Log-likelihood of held-out actions that z adds, nats a sample."""
        explained = [
            judge.log_likelihood(c, self.held.data).mean() for c in (self.conditional, self.plain)
        ]
        return float(explained[0] - explained[1])

    def controllers(self, plant: PlantSettings) -> dict[str, list[Controller]]:
        """Who is compared in closed loop, one controller for each mode: both clones, and PI."""
        modes, policy = len(plant.levels), self.conditional.policy
        found: dict[str, list[Controller]] = {
            "clone": [Learnt(policy, plant.seen, code) for code in self.codes],
            "plain clone": [Learnt(self.plain.policy, plant.seen, NO_Z)] * modes,
        }
        if plant.kind == "cstr":
            found["pi"] = [controller(plant, None)] * modes
        return found


def cloned(config: Config, given: Demonstrations, seed: int, run: Run) -> Clones:
    """Clone a seed's share of the demonstrations, with and without modes."""
    learnt, held = given.split(config.clone.held_out, seed)
    plain = train(learnt.data, config.clone, seed, run, conditional=False)
    conditional = train(learnt.data, config.clone, seed, run, conditional=True)
    return Clones(plain, conditional, learnt, held, _codes(conditional, learnt, JUDGED + seed))


def _codes(cloning: Cloning, learnt: Demonstrations, noise: int) -> Singles:
    if learnt.mode is not None:
        return judge.matching(cloning, learnt, int(learnt.mode.max()) + 1)
    if learnt.plant is not None:
        return judge.best_codes(cloning, learnt.plant, noise)
    return np.eye(cloning.settings.modes, dtype=np.float32)
