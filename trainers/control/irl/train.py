"""How is a reward learnt in a run, and what is kept of it? The policy, q, and a frozen reward."""

import copy
from dataclasses import dataclass

import torch

from cluster.errors import CorymbError
from cluster.run import Run
from trainers.control.imitate.clones import Clones
from trainers.control.inference import PooledEncoder
from trainers.control.irl.algorithm import AdversarialImitation, Start, adversarial
from trainers.control.irl.cases import Cases
from trainers.control.irl.config import Config
from trainers.control.irl.discriminator import Discriminator, Steps, classification
from trainers.control.irl.learner import MATERIAL, Material
from trainers.control.irl.settings import Change, RewardSettings
from trainers.control.irl.simulator import replayed_modes
from trainers.control.irl.transfer import FrozenReward, transfer
from trainers.control.networks import GaussianPolicy
from trainers.control.plants import PlantSettings
from trainers.control.rl.training import train


@dataclass(frozen=True)
class Outcome:
    """What adversarial training leaves.

    Attributes
    ----------
    policy, q : of the controller.
    reward : frozen.
    """

    policy: GaussianPolicy
    q: PooledEncoder
    reward: FrozenReward


def learn(
    config: Config, plant: PlantSettings, cases: Cases, clones: Clones, seed: int, run: Run
) -> Outcome:
    """Learn policy, q and reward, from a seed's clones on.

    Raises
    ------
    CorymbError : where training diverges.
    """
    learnt, clone = clones.learnt, clones.conditional
    by_truth = config.reward.simulator == "truth"
    mode = learnt.mode if by_truth and learnt.mode is not None else None
    if mode is None:
        mode = replayed_modes(plant, learnt.data)
    start = Start(clone.policy, clones.q, plant, learnt.data, mode, cases.columns)
    algorithm = adversarial(start, config.reward, config.policy, seed)
    try:
        train(algorithm, run, f"irl-{seed}", f"Inverse RL, seed {seed}")
        return _outcome(algorithm, clones, config.reward, seed)
    finally:
        algorithm.stop()


def retrain(
    config: Config, plant: PlantSettings, reward: FrozenReward, change: Change, name: str, run: Run
) -> GaussianPolicy:
    """Train a fresh policy from the frozen reward, on the changed plant.

    Parameters
    ----------
    name : of the checkpoint; it ends in the seed.
    """
    seed = int(name.rpartition("-")[2])
    algorithm = transfer(reward, plant, change, config.transfer.policy, seed)
    words = f"Fresh policy, {change.name}, seed {seed}"
    try:
        train(algorithm, run, name, words, "transfer.policy")
        return algorithm.networks().policy
    finally:
        algorithm.stop()


def _outcome(
    algorithm: AdversarialImitation, clones: Clones, settings: RewardSettings, seed: int
) -> Outcome:
    policy, q, d = algorithm.networks().policy, algorithm.q(), algorithm.discriminator()
    material: Material = algorithm.config.learner_config_dict[MATERIAL]
    generator = torch.Generator().manual_seed(seed)
    demonstrated, others = material.demonstrations, material.disturbed
    expert = demonstrated.steps(demonstrated.contexts(q, generator), policy)
    if others is not None:
        d = settled(d, expert, others, settings, generator)
    actions = policy.units()[1]
    frozen = FrozenReward(d.reward, d.form, actions, clones.codes, expert, others or expert)
    return Outcome(policy, q, frozen)


def settled(
    discriminator: Discriminator,
    expert: Steps,
    others: Steps,
    settings: RewardSettings,
    generator: torch.Generator,
) -> Discriminator:
    """A copy of D, fitted on against fixed steps while its rate falls to zero.

    Raises
    ------
    CorymbError : where the loss is no number.
    """
    d = copy.deepcopy(discriminator)
    optimizer = torch.optim.Adam(d.parameters(), settings.lr)
    count = 2 * settings.batch
    for step in range(settings.settle):
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * (1 - step / settings.settle)
        one = expert.take(torch.randint(len(expert), (count,), generator=generator))
        other = others.take(torch.randint(len(others), (count,), generator=generator))
        between = d.slope(one, other, torch.rand(count, generator=generator))
        loss = classification(d(one), d(other)) + settings.penalty * between.mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if not torch.isfinite(loss):
            raise CorymbError(f"The reward diverged in settling step {step + 1}; lower reward.lr")
    return d
