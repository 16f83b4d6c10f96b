"""The recipe: read or record demonstrations, clone them with and without modes, judge both."""

import numpy as np
from numpy.typing import NDArray

from cluster.evidence import Result
from cluster.run import Run
from trainers.control.closed_loop import Response, respond
from trainers.control.controller import FOLDER, SavedController, save
from trainers.control.expert.record import controller
from trainers.control.imitate import judge
from trainers.control.imitate.clone import Cloning, Tensors
from trainers.control.imitate.config import Config
from trainers.control.imitate.data import Demonstrations, demonstrations
from trainers.control.imitate.findings import Findings
from trainers.control.imitate.present import present
from trainers.control.imitate.train import train
from trainers.control.plants import PlantSettings, environment
from trainers.control.trajectories import Trajectories

JUDGED = 1_000_000
"""Seeds of noise in closed loop begin here."""


def run(config: Config, run: Run) -> Result:
    """Clone for each seed; the first one's controller is kept in the run."""
    given = demonstrations(config)
    found = Findings(given)
    for i, seed in enumerate(config.seeds):
        learnt, held = given.split(config.clone.held_out, seed)
        plain = train(learnt.data, config.clone, seed, run, conditional=False)
        clone = train(learnt.data, config.clone, seed, run, conditional=True)
        explained = [judge.log_likelihood(c, held.data).mean() for c in (clone, plain)]
        found.gain.append(float(explained[0] - explained[1]))
        z = _judge(config, found, plain, clone, learnt, held, seed)
        if i == 0:
            save(run.path / FOLDER, controller_of(clone, given, z))
            _look(found, clone, held)
    return present(config, found, run)


def _judge(
    config: Config,
    found: Findings,
    plain: Cloning,
    clone: Cloning,
    learnt: Demonstrations,
    held: Demonstrations,
    seed: int,
) -> NDArray[np.float32]:
    """Add what a seed's clones are worth; return the code of each mode."""
    plant, codes = learnt.plant, np.eye(config.clone.modes, dtype=np.float32)
    match = None
    if learnt.mode is not None:
        match = judge.matching(clone, learnt, int(learnt.mode.max()) + 1)
        found.accuracy.append(judge.accuracy(clone, match, held))
    if plant is None:
        return codes if match is None else match.z
    if match is None:
        match = judge.best_codes(clone, plant, JUDGED + seed)
    modes, noise = len(plant.levels), JUDGED + seed
    none = np.zeros(0, np.float32)
    ran = {
        "clone": judge.closed_loop(clone, plant, list(match.z), config.rows, noise),
        "plain clone": judge.closed_loop(plain, plant, [none] * modes, config.rows, noise),
        **_expert(plant, config.rows, noise),
    }
    for name, responses in ran.items():
        found.responses.setdefault(name, []).append(responses)
    return match.z


def _expert(plant: PlantSettings, rows: int, noise: int) -> dict[str, list[Response]]:
    """PI, where the plant is one that PI runs."""
    if plant.kind != "cstr":
        return {}
    return {"pi": respond(plant, [controller(plant, None)] * len(plant.levels), rows, noise)}


def _look(found: Findings, clone: Cloning, held: Demonstrations) -> None:
    """Keep what q says of every held-out trajectory, for the picture of z."""
    assert clone.inference is not None
    tensors = Tensors.of(held.data, clone.policy)
    found.z = judge.codes_of(clone.inference, tensors, 20).numpy()
    found.z_mode = held.mode


def controller_of(clone: Cloning, given: Demonstrations, z: NDArray[np.float32]) -> SavedController:
    """The clone as it is kept: limits are the plant's, or those of what was seen."""
    data = given.data
    low, high = _limits(given.plant, data)
    return SavedController(
        clone.policy, clone.inference, data.observations, data.actions, data.seconds,
        low, high, clone.settings.pieces, z,
    )  # fmt: skip


def _limits(
    plant: PlantSettings | None, data: Trajectories
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if plant is not None:
        space = environment(plant, 1).single_action_space
        return tuple(space.low.tolist()), tuple(space.high.tolist())  # type: ignore[attr-defined]
    rows = data.u[data.valid]
    return tuple(rows.min(0).tolist()), tuple(rows.max(0).tolist())
