"""What was found of a clone, seed by seed, before it is put into words?"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trainers.control.closed_loop import Response
from trainers.control.imitate.data import Demonstrations


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
