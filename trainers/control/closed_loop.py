"""What does a plant do under a controller? Quiet and noisy episodes in each of its modes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from envs.control import Controller, Reads
from envs.rollout import Episodes, follow
from trainers.control.networks import GaussianPolicy
from trainers.control.plants import PlantSettings, environment

Floats = NDArray[np.float64]


@dataclass
class Learnt:
    """A learnt policy as a controller: its mean action for what it sees.

    Attributes
    ----------
    policy : reads `seen`, then z.
    seen : names of its observations.
    z : (c,), the same for every row, or (count, c); empty for a policy without context.
    """

    policy: GaussianPolicy
    seen: Sequence[str]
    z: NDArray[np.float32]

    def reset(self, count: int) -> None:
        """Hold z against the number of rows."""
        self._z = np.broadcast_to(np.asarray(self.z, np.float32), (count, self.policy.context))

    def act(self, env: Reads) -> Floats:
        """Return actions (n, a) in the units of the plant."""
        fields = [np.atleast_1d(np.asarray(env.read(name), np.float32)) for name in self.seen]
        seen = np.concatenate([np.stack(fields, axis=1), self._z], axis=1)
        with torch.no_grad():
            actions = self.policy.act(torch.from_numpy(seen))
        found: Floats = actions.numpy().astype(np.float64)
        return found


@dataclass(frozen=True)
class Response:
    """Episodes in one mode: a quiet one, and noisy ones that every controller meets alike.

    Attributes
    ----------
    quiet : one row, without noise.
    noisy : rows with the plant's noise; row i has the noise of `seed` + i.
    """

    quiet: Episodes
    noisy: Episodes


def respond(
    plant: PlantSettings,
    controllers: Sequence[Controller],
    rows: int,
    seed: int,
    /,
    **changes: Any,
) -> list[Response]:
    """Run a controller in each mode of a plant.

    Parameters
    ----------
    controllers : one for each mode: a learnt one has another z in each.
    rows : noisy episodes in each mode.
    changes : keywords of the environment's settings, such as another plant.
    """
    loud = environment(plant, rows, **changes)
    still = environment(plant.model_copy(update={"noise": 0.0}), 1, **changes)
    found = []
    for mode, acting in enumerate(controllers):
        found.append(
            Response(
                follow(still, acting, plant.samples, seed=seed, mode=mode),
                follow(loud, acting, plant.samples, seed=seed, mode=mode),
            )
        )
    return found
