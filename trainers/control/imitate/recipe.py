"""The recipe: read or record demonstrations, clone them with and without modes, judge both."""

from cluster.evidence import Result
from cluster.run import Run
from trainers.control.controller import FOLDER, SavedController, save
from trainers.control.imitate.clones import Clones, cloned
from trainers.control.imitate.config import Config
from trainers.control.imitate.data import demonstrations
from trainers.control.imitate.findings import Findings
from trainers.control.imitate.present import present
from trainers.control.inference import PooledEncoder
from trainers.control.networks import GaussianPolicy
from trainers.control.plants import PlantSettings, environment
from trainers.control.trajectories import Trajectories


def run(config: Config, run: Run) -> Result:
    """Clone for each seed; the first one's controller is kept in the run."""
    given = demonstrations(config)
    found = Findings(given)
    for i, seed in enumerate(config.seeds):
        clones = cloned(config, given, seed, run)
        found.gain.append(clones.gain())
        found.add_inference(clones.q, clones.conditional.policy, clones)
        if given.plant is not None:
            found.add_responses(given.plant, clones.controllers(given.plant), config.rows, seed)
        if i == 0:
            save(run.path / FOLDER, controller_of(clones.conditional.policy, clones.q, clones))
    return present(config, found, run)


def controller_of(policy: GaussianPolicy, q: PooledEncoder, clones: Clones) -> SavedController:
    """A controller as it is kept: limits are the plant's, or those of what was seen."""
    data = clones.learnt.data
    low, high = _limits(clones.learnt.plant, data)
    return SavedController(
        policy, q, data.observations, data.actions, data.seconds, low, high,
        clones.conditional.settings.pieces, clones.codes,
    )  # fmt: skip


def _limits(
    plant: PlantSettings | None, data: Trajectories
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if plant is not None:
        space = environment(plant, 1).single_action_space
        return tuple(space.low.tolist()), tuple(space.high.tolist())  # type: ignore[attr-defined]
    rows = data.u[data.valid]
    return tuple(rows.min(0).tolist()), tuple(rows.max(0).tolist())
