"""How is a clone trained, so that a kill loses little? Steps between checkpoints."""

from collections.abc import Mapping

import numpy as np
import torch

from cluster.errors import CorymbError
from cluster.run import Run
from trainers.control.imitate.clone import Cloning
from trainers.control.imitate.settings import CloneSettings
from trainers.control.moments import moments, prefixed, set_moments, under
from trainers.control.trajectories import Trajectories

EVERY = 500
"""Steps between checkpoints."""


def train(
    data: Trajectories, settings: CloneSettings, seed: int, run: Run, *, conditional: bool
) -> Cloning:
    """Clone demonstrations, from the run's last checkpoint on if there is one.

    Raises
    ------
    CorymbError : where the loss is no number.
    """
    kind = "conditional" if conditional else "plain"
    name = f"clone-{kind}-{seed}"
    cloning = Cloning(data, settings, conditional=conditional, seed=seed)
    kept = run.load(name)
    done = 0
    if kept is not None:
        done = kept[0]
        restore(cloning, kept[1])
    while done < settings.steps:
        last = min(done + EVERY, settings.steps)
        losses = []
        for loss in cloning.train_steps(done, last):
            losses.append(loss)
            if not np.isfinite(loss):
                raise CorymbError(
                    f"Cloning ({kind}, seed {seed}) diverged in step {done + len(losses)}; "
                    "lower clone.lr"
                )
            run.say(f"{kind} clone, seed {seed}: step {done + len(losses)} of {settings.steps}")
            if run.stop_requested():
                break
        done += len(losses)
        run.log(done, seed=seed, **{f"{kind}.loss": float(np.mean(losses))})
        run.save(done, snapshot(cloning), {}, name=name)
        run.check_stop()
    return cloning


def snapshot(cloning: Cloning) -> dict[str, np.ndarray]:
    """Weights, Adam's moments and the state of the draws, as arrays."""
    arrays = {f"module/{k}": v.numpy().copy() for k, v in cloning.state_dict().items()}
    arrays |= prefixed("adam", moments(cloning.optimizer))
    arrays["draws"] = cloning.generator.get_state().numpy().copy()
    return arrays


def restore(cloning: Cloning, arrays: Mapping[str, np.ndarray]) -> None:
    """Go on where `snapshot` was taken."""
    weights = {k: torch.from_numpy(np.array(arrays[f"module/{k}"])) for k in cloning.state_dict()}
    cloning.load_state_dict(weights)
    set_moments(cloning.optimizer, under("adam", arrays))
    cloning.generator.set_state(torch.from_numpy(np.array(arrays["draws"])))
