"""What was found of a clone, seed by seed, before it is put into words?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from envs.control import Controller
from trainers.control.closed_loop import Response, respond
from trainers.control.imitate import judge
from trainers.control.imitate.clone import Tensors
from trainers.control.imitate.clones import Clones
from trainers.control.imitate.data import Demonstrations
from trainers.control.inference import PooledEncoder
from trainers.control.networks import GaussianPolicy
from trainers.control.plants import PlantSettings
from trainers.control.record import JUDGED


@dataclass
class Findings:
    """Lists have an entry a seed.

    Attributes
    ----------
    given : the demonstrations.
    responses : by controller, each mode's; empty where the plant cannot be simulated.
    accuracy : share of held-out modes found, by samples seen; empty where nobody knows them.
    gain : log-likelihood of held-out actions that z adds, nats a sample.
    z : (n, .), q's parameters after 20 samples of the first seed's held-out trajectories.
    z_mode : (n,), their true modes, or None.
    """

    given: Demonstrations
    responses: dict[str, list[list[Response]]] = field(default_factory=dict)
    accuracy: list[dict[str, float]] = field(default_factory=list)
    gain: list[float] = field(default_factory=list)
    z: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    z_mode: NDArray[np.int64] | None = None

    def add_inference(self, q: PooledEncoder, policy: GaussianPolicy, clones: Clones) -> None:
        """Add what q says of a seed's held-out trajectories; the first seed's is kept to draw."""
        held = clones.held
        if held.mode is not None:
            self.accuracy.append(judge.accuracy(q, policy, clones.codes, held))
        if not len(self.z):
            self.z = judge.codes_of(q, Tensors.of(held.data, policy), 20).numpy()
            self.z_mode = held.mode

    def add_responses(
        self,
        plant: PlantSettings,
        controllers: Mapping[str, Sequence[Controller]],
        rows: int,
        seed: int,
    ) -> None:
        """Run a seed's controllers, one for each mode, in the same noise."""
        for name, each in controllers.items():
            ran = respond(plant, each, rows, JUDGED + seed)
            self.responses.setdefault(name, []).append(ran)
