"""What is a learnt reward good for? A fresh policy learns from it alone, on a changed plant."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainers.control.irl.cases import changed
from trainers.control.irl.discriminator import Reward, Steps
from trainers.control.irl.settings import Change, Form
from trainers.control.networks import GaussianPolicy, Units
from trainers.control.plants import PlantSettings, explored, units
from trainers.control.rl.algorithm import PolicyOptimisation, configure
from trainers.control.rl.learner import RolloutLearner
from trainers.control.rl.module import module_spec
from trainers.control.rl.ppo import PPOLearner
from trainers.control.rl.rollout import Contexts, Rollout
from trainers.control.rl.settings import PolicySettings
from trainers.control.rl.trpo import TRPOLearner

FROZEN = "frozen"
"""Key of the learner_config_dict under which the `FrozenReward` is."""


class FrozenReward(nn.Module):
    """A learnt reward that is learnt no more, in units of its own spread.

    Parameters
    ----------
    reward, form : of the discriminator.
    actions : how the reward's actions are scaled.
    codes : (K, c), z of each mode.
    expert, others : steps that set the scale: 0 is the experts' mean, 1 the others' deviation.
    """

    def __init__(
        self,
        reward: Reward,
        form: Form,
        actions: Units,
        codes: NDArray[np.float32],
        expert: Steps,
        others: Steps,
    ) -> None:
        super().__init__()
        self.reward, self.form, self.codes = reward, form, codes
        self.action_centre = torch.tensor([*actions.centre])
        self.action_width = torch.tensor([*actions.width])
        self.requires_grad_(False)
        self._zero, self._one = 0.0, 1.0
        self._zero = float(self(expert.x, expert.next_x, expert.z, expert.a).mean())
        self._one = float(self(others.x, others.next_x, others.z, others.a).std())

    def forward(self, x: Tensor, next_x: Tensor, z: Tensor, a: Tensor) -> Tensor:
        """Rewards (...) of steps; a (..., a) is scaled as the reward has it."""
        if self.form == "action":
            found: Tensor = self.reward(x, z, a)
        else:
            found = self.reward(next_x, z)
        return (found - self._zero) / self._one

    def scaled_action(self, u: Tensor) -> Tensor:
        """Actions in the units of the plant as the reward reads them."""
        return (u - self.action_centre) / self.action_width

    def of(self, rollout: Rollout, policy: GaussianPolicy) -> Tensor:
        """Rewards (n, T) of what the plant was given in a rollout of any policy."""
        obs = torch.from_numpy(rollout.obs)
        k = obs.shape[-1] - policy.context
        a = self.scaled_action(policy.unscaled(torch.from_numpy(rollout.taken)))
        with torch.no_grad():
            found: Tensor = self(obs[:, :-1, :k], obs[:, 1:, :k], obs[:, :-1, k:], a)
        return found


class FrozenLearner(RolloutLearner):
    """Learns policy and value from the reward in its configuration."""

    def rewards(self, rollout: Rollout, generator: torch.Generator) -> Tensor:
        """The frozen reward's (n, T)."""
        del generator
        frozen: FrozenReward = self.config.learner_config_dict[FROZEN]
        return frozen.of(rollout, self.networks.policy)


class FrozenPPO(FrozenLearner, PPOLearner):
    """With PPO."""


class FrozenTRPO(FrozenLearner, TRPOLearner):
    """With TRPO."""


class Transfer(PolicyOptimisation):
    """RLlib's algorithm with each mode's z in the contexts."""

    def contexts(self) -> Contexts:
        """Every mode in turn, with its z."""
        plain = super().contexts()
        codes: NDArray[np.float32] = self.config.learner_config_dict[FROZEN].codes
        return Contexts(codes[plain.mode], plain.mode)


def transfer(
    frozen: FrozenReward,
    plant: PlantSettings,
    change: Change,
    policy: PolicySettings,
    seed: int,
) -> Transfer:
    """The training of a fresh policy on the changed plant."""
    context = frozen.codes.shape[1]
    moved, keywords = changed(plant, change)
    algorithm: Transfer = configure(
        policy,
        moved,
        module_spec(units(plant)[0], explored(plant), context, policy.hidden, policy.log_sd),
        seed,
        algorithm=Transfer,
        learner={"ppo": FrozenPPO, "trpo": FrozenTRPO}[policy.algorithm],
        learner_config={FROZEN: frozen},
        changes=keywords,
    ).build_algo()
    return algorithm
