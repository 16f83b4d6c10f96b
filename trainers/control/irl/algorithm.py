"""How does adversarial IRL go round? Contexts from demonstrations, a rollout, an update."""

import copy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.core import DEFAULT_MODULE_ID
from torch import Tensor

from trainers.control.inference import PooledEncoder
from trainers.control.irl.bank import Demonstrated, disturbed_rollout, rollout_steps
from trainers.control.irl.discriminator import Discriminator, Steps
from trainers.control.irl.learner import (
    MATERIAL,
    AdversarialLearner,
    AdversarialPPO,
    AdversarialTRPO,
    Material,
)
from trainers.control.irl.modules import INFERENCE, REWARD, InferenceModule, RewardModule, spec
from trainers.control.irl.settings import RewardSettings
from trainers.control.networks import GaussianPolicy, Units
from trainers.control.plants import PlantSettings, environment
from trainers.control.rl.algorithm import PolicyOptimisation, configure
from trainers.control.rl.module import module_spec
from trainers.control.rl.rollout import Contexts
from trainers.control.rl.settings import PolicySettings
from trainers.control.trajectories import Trajectories

ALIKE = 2
"""Rollouts of each z: the information term is a covariance among them."""


@dataclass(frozen=True)
class Start:
    """Where adversarial training begins: a clone, and the demonstrations it was cloned from.

    Attributes
    ----------
    policy, q : of the clone.
    plant : simulated.
    data : without labels.
    mode : (n,), the simulator's mode for each of them.
    columns : which observations the reward reads.
    """

    policy: GaussianPolicy
    q: PooledEncoder
    plant: PlantSettings
    data: Trajectories
    mode: NDArray[np.int64]
    columns: tuple[int, ...]


class AdversarialImitation(PolicyOptimisation):
    """RLlib's algorithm with D and q as modules of the learner, and z in the contexts."""

    start: Start
    demonstrated: Demonstrated

    def contexts(self) -> Contexts:
        """z ~ q(z | tau) of drawn demonstrations, and the simulator's mode for each."""
        rows, seed = self.settings.rows, self.draw("contexts")
        return drawn_contexts(self.start, self.demonstrated, self.q(), rows, seed)

    def discriminator(self) -> Discriminator:
        """A copy of D as it is now."""
        found = Discriminator(**self.config.rl_module_spec.rl_module_specs[REWARD].model_config)
        found.load_state_dict(self._part(REWARD, "discriminator."))
        return found

    def q(self) -> PooledEncoder:
        """A copy of q as it is now."""
        found = copy.deepcopy(self.start.q)
        found.load_state_dict(self._part(INFERENCE, "q."))
        return found

    def _part(self, module: str, prefix: str) -> dict[str, Tensor]:
        weights = self._weights()[module]
        return {k.removeprefix(prefix): torch.from_numpy(np.array(v)) for k, v in weights.items()}


def drawn_contexts(
    start: Start, demonstrated: Demonstrated, q: PooledEncoder, rows: int, seed: int
) -> Contexts:
    """Contexts of a rollout: as many rows, `ALIKE` of them for each demonstration."""
    generator = torch.Generator().manual_seed(seed)
    count = -(-rows // ALIKE)
    chosen = torch.randint(len(demonstrated.x), (count,), generator=generator)
    z = demonstrated.take(chosen).contexts(q, generator).numpy()
    mode = start.mode[chosen.numpy()]
    return Contexts(np.repeat(z, ALIKE, 0)[:rows], np.repeat(mode, ALIKE)[:rows])


def adversarial(
    start: Start, reward: RewardSettings, policy: PolicySettings, seed: int
) -> AdversarialImitation:
    """The algorithm, at iteration 0: policy and q are the clone's, the reward is unknown."""
    demonstrated = Demonstrated.of(start.data, start.policy)
    actor = copy.deepcopy(start.policy)
    torch.nn.init.constant_(actor.log_sd, policy.log_sd)
    disturbed = _disturbed(start, demonstrated, actor, reward, policy, seed)
    observations, actions = start.policy.units()
    inference = {
        "observations": observations, "actions": len(start.data.actions), "size": start.q.size,
        "kind": start.q.kind, "hidden": start.q.hidden,
    }  # fmt: skip
    discriminator = {
        "form": reward.form, "observations": _picked(observations, start.columns),
        "columns": start.columns, "context": start.q.size, "actions": len(start.data.actions),
        "hidden": reward.hidden, "gamma": policy.gamma,
    }  # fmt: skip
    k = len(observations.centre)
    algorithm: AdversarialImitation = configure(
        policy,
        start.plant,
        module_spec(observations, actions, start.q.size, actor.hidden, policy.log_sd),
        seed,
        algorithm=AdversarialImitation,
        learner=_learner(policy),
        learner_config={MATERIAL: Material(reward, demonstrated, disturbed)},
        others={
            REWARD: spec(RewardModule, k, **discriminator),
            INFERENCE: spec(InferenceModule, k, **inference),
        },
    ).build_algo()
    algorithm.start, algorithm.demonstrated = start, demonstrated
    algorithm.set_weights_of(
        {
            DEFAULT_MODULE_ID: {f"policy.{k}": v for k, v in actor.state_dict().items()},
            INFERENCE: {f"q.{k}": v for k, v in start.q.state_dict().items()},
        }
    )
    return algorithm


def _learner(policy: PolicySettings) -> type[AdversarialLearner]:
    return {"ppo": AdversarialPPO, "trpo": AdversarialTRPO}[policy.algorithm]


def _disturbed(
    start: Start,
    demonstrated: Demonstrated,
    actor: GaussianPolicy,
    reward: RewardSettings,
    policy: PolicySettings,
    seed: int,
) -> Steps | None:
    """Steps of the clone's disturbed rollouts, four times as many as one iteration's."""
    if reward.disturbed == 0:
        return None
    rows = 4 * policy.rows
    contexts = drawn_contexts(start, demonstrated, start.q, rows, seed)
    env = environment(start.plant, rows)
    samples = policy.samples or start.plant.samples
    found = disturbed_rollout(env, actor, contexts, samples, reward.disturbance, seed)
    return rollout_steps(found, start.q.size)


def _picked(units: Units, columns: tuple[int, ...]) -> Units:
    return Units([units.centre[i] for i in columns], [units.width[i] for i in columns])
