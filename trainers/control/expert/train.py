"""How is an expert learnt? One training for each seed, taken up again where it stopped."""

from cluster.run import Run
from trainers.control.expert.config import Config
from trainers.control.networks import GaussianPolicy
from trainers.control.plants import explored, units
from trainers.control.rl.algorithm import PolicyOptimisation, configure
from trainers.control.rl.module import module_spec
from trainers.control.rl.training import train


def learn(config: Config, seed: int, run: Run) -> GaussianPolicy:
    """Train a policy that sees the mode, with the environment's reward.

    Raises
    ------
    CorymbError : where training diverges.
    """
    algorithm = algorithm_of(config, seed)
    try:
        train(algorithm, run, f"expert-{seed}", f"Expert, seed {seed}")
        return algorithm.networks().policy
    finally:
        algorithm.stop()


def algorithm_of(config: Config, seed: int) -> PolicyOptimisation:
    """RLlib's algorithm of an expert."""
    s, plant = config.policy, config.full_plant
    spec = module_spec(units(plant)[0], explored(plant), 0, s.hidden, s.log_sd)
    algorithm: PolicyOptimisation = configure(s, plant, spec, seed).build_algo()
    return algorithm
