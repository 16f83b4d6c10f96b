"""How is an expert learnt? One training for each seed, taken up again where it stopped."""

from cluster.errors import CorymbError
from cluster.run import Run
from trainers.control.expert.config import Config
from trainers.control.networks import GaussianPolicy, Units
from trainers.control.plants import units
from trainers.control.rl.algorithm import PolicyOptimisation, configure, optimise
from trainers.control.rl.module import module_spec

EVERY = 10
"""Iterations between checkpoints."""

ACTIONS = {"cstr": Units([0.3], [0.25]), "bioreactor": Units([2.5, 2.5], [1.5, 1.5])}
"""A learner that knows nothing yet tries the valve, and the controls, over about their range."""


def learn(config: Config, seed: int, run: Run) -> GaussianPolicy:
    """Train a policy that sees the mode, with the environment's reward.

    Raises
    ------
    CorymbError : where training diverges.
    """
    algorithm = algorithm_of(config, seed)
    name = f"expert-{seed}"
    kept = run.load(name)
    if kept is not None:
        algorithm.restore_snapshot(kept[1])
    total = config.policy.iterations
    try:
        for figures in optimise(algorithm):
            done = algorithm.done
            run.log(done, seed=seed, **{f"expert.{k}": v for k, v in figures.items()})
            run.say(f"expert, seed {seed}: iteration {done} of {total}, {figures['return']:.4g}")
            if done % EVERY == 0 or done == total or run.stop_requested():
                run.save(done, algorithm.snapshot(), {}, name=name)
                run.check_stop()
        return algorithm.networks().policy
    except ValueError as error:
        raise CorymbError(
            f"The expert of seed {seed} diverged in iteration {algorithm.done + 1}: {error} "
            "Lower policy.lr"
        ) from error
    finally:
        algorithm.stop()


def algorithm_of(config: Config, seed: int) -> PolicyOptimisation:
    """RLlib's algorithm of an expert."""
    s, plant = config.policy, config.full_plant
    spec = module_spec(units(plant)[0], ACTIONS[plant.kind], 0, s.hidden, s.log_sd)
    algorithm: PolicyOptimisation = configure(s, plant, spec, seed).build_algo()
    return algorithm
