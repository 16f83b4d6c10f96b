"""The recipe: clones, then a reward by adversarial IRL, then fresh policies on changed plants."""

from cluster.evidence import Result
from cluster.run import Run
from envs.control import Controller
from trainers.control.closed_loop import Learnt
from trainers.control.controller import FOLDER, save
from trainers.control.imitate.clones import cloned
from trainers.control.imitate.data import demonstrations
from trainers.control.imitate.recipe import controller_of
from trainers.control.irl.cases import cases, changed
from trainers.control.irl.config import Config
from trainers.control.irl.findings import FRESH, IRL, Findings
from trainers.control.irl.look import look
from trainers.control.irl.present import present
from trainers.control.irl.train import learn, retrain
from trainers.control.networks import GaussianPolicy
from trainers.control.plants import PlantSettings
from trainers.control.trajectories import Singles


def run(config: Config, run: Run) -> Result:
    """Learn a reward for each seed and try it; the first seed's controller is kept in the run."""
    given = demonstrations(config)
    plant, planned = cases(config, given)
    found = Findings(given)
    for i, seed in enumerate(config.seeds):
        clones = cloned(config, given, seed, run)
        found.gain.append(clones.gain())
        learnt = learn(config, plant, planned, clones, seed, run)
        found.add_inference(learnt.q, learnt.policy, clones)
        own = {IRL: _controllers(learnt.policy, plant, clones.codes)}
        found.add_responses(plant, own | clones.controllers(plant), config.rows, seed)
        if plant.kind == "cstr":
            found.looks.append([look(learnt.reward, plant, m) for m in range(len(plant.levels))])
        for index, change in enumerate(planned.changes):
            fresh = retrain(config, plant, learnt.reward, change, f"fresh-{index}-{seed}", run)
            moved, _ = changed(plant, change)
            tried = {FRESH: _controllers(fresh, moved, clones.codes), **own}
            tried |= clones.controllers(moved)
            found.add_transfer(plant, change, tried, config.rows, seed)
        if i == 0:
            save(run.path / FOLDER, controller_of(learnt.policy, learnt.q, clones))
    return present(config, plant, found, run)


def _controllers(policy: GaussianPolicy, plant: PlantSettings, codes: Singles) -> list[Controller]:
    return [Learnt(policy, plant.seen, code) for code in codes]
