"""How are policy, reward and q learnt from a rollout? Algorithm 1 of arXiv 2505.21026.

The information term moves q and the reward, the discriminator takes its steps against the rollout,
and the policy is optimised, by PPO or TRPO, with D's logit as its reward.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from torch import Tensor

from trainers.control.inference import PooledEncoder
from trainers.control.irl.bank import Demonstrated, rollout_steps
from trainers.control.irl.discriminator import Discriminator, Steps, classification
from trainers.control.irl.information import covariance
from trainers.control.irl.modules import INFERENCE, REWARD
from trainers.control.irl.settings import RewardSettings
from trainers.control.rl.learner import RolloutLearner, Samples
from trainers.control.rl.ppo import PPOLearner
from trainers.control.rl.rollout import Rollout
from trainers.control.rl.trpo import TRPOLearner

MATERIAL = "material"
"""Key of the learner_config_dict under which `Material` is."""


@dataclass(frozen=True)
class Material:
    """What is learnt from.

    Attributes
    ----------
    settings : of the reward.
    demonstrations : without labels.
    disturbed : steps of disturbed rollouts, to be held against, or None.
    """

    settings: RewardSettings
    demonstrations: Demonstrated
    disturbed: Steps | None


class AdversarialLearner(RolloutLearner):
    """Learner with three modules: policy and value, discriminator, q."""

    @property
    def material(self) -> Material:
        """What the configuration hands over."""
        found: Material = self.config.learner_config_dict[MATERIAL]
        return found

    @property
    def discriminator(self) -> Discriminator:
        """D, whether or not several learners share it."""
        found: Discriminator = self.module[REWARD].unwrapped().discriminator
        return found

    @property
    def q(self) -> PooledEncoder:
        """The inference network, as `discriminator`."""
        found: PooledEncoder = self.module[INFERENCE].unwrapped().q
        return found

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Give D and q a rate of their own."""
        if module_id == DEFAULT_MODULE_ID:
            super().configure_optimizers_for_module(module_id, config)
            return
        parameters = self.get_parameters(self.module[module_id])
        self.register_optimizer(
            module_id=module_id,
            optimizer=torch.optim.Adam(parameters),
            params=parameters,
            lr_or_lr_schedule=self.material.settings.lr,
        )

    def prepare(self, rollout: Rollout, generator: torch.Generator) -> Samples:
        """Move q and the reward, then value the rollout by the new reward."""
        steps = rollout_steps(rollout, self.q.size)
        self._inform(rollout, steps)
        self._discriminate(steps, generator)
        return super().prepare(rollout, generator)

    def rewards(self, rollout: Rollout, generator: torch.Generator) -> Tensor:
        """D's logits (n, T)."""
        del generator
        valid = torch.from_numpy(rollout.valid)
        found = torch.zeros(valid.shape)
        with torch.no_grad():
            found[valid] = self.discriminator(rollout_steps(rollout, self.q.size))
        return found

    def compute_loss_for_module(
        self, *, module_id: str, batch: Mapping[str, Any], fwd_out: Mapping[str, Any], **_: Any
    ) -> Tensor:
        """The loss of any of the three modules, a scalar."""
        s = self.material.settings
        if module_id == DEFAULT_MODULE_ID:
            return self.loss(batch, fwd_out)
        if module_id == INFERENCE:
            return torch.mul(fwd_out["log_q"].mean(), -s.information)
        if "total" in fwd_out:
            return -s.information * covariance(batch["log_q"], fwd_out["total"], batch["group"])
        apart: Tensor = classification(fwd_out["expert"], fwd_out["other"])
        return torch.add(apart, fwd_out["slope"].mean(), alpha=s.penalty)

    def _inform(self, rollout: Rollout, steps: Steps) -> None:
        """Take the information term's steps, in psi and in theta."""
        obs, valid = torch.from_numpy(rollout.obs), torch.from_numpy(rollout.valid)
        k = obs.shape[-1] - self.q.size
        z, a = obs[:, 0, k:], torch.from_numpy(rollout.taken)
        tau = {"x": obs[:, :-1, :k], "a": a, "valid": valid, "z": z}
        with torch.no_grad():
            log_q = self.q.log_prob(self.q(tau["x"], a, valid), z)
        self.note("information", float(log_q.mean()))
        if self.material.settings.information == 0:
            return
        group = torch.unique(z, dim=0, return_inverse=True)[1]
        rows = torch.arange(len(z))[:, None].expand_as(valid)[valid]
        told = {"steps": steps, "rows": rows, "log_q": log_q, "group": group}
        self._update({INFERENCE: tau, REWARD: told})

    def _discriminate(self, steps: Steps, generator: torch.Generator) -> None:
        """Take D's steps, and note how well it tells both sides apart."""
        s, disturbed = self.material.settings, self.material.disturbed
        expert = self._drawn(generator)
        bank = 0 if disturbed is None else round(s.disturbed * s.batch)
        right = 0.0
        for _ in range(s.steps):
            other = steps.take(_some(len(steps), s.batch - bank, generator))
            if disturbed is not None:
                pushed = disturbed.take(_some(len(disturbed), bank, generator))
                other = Steps.joined(other, pushed)
            batch = {
                "expert": expert.take(_some(len(expert), s.batch, generator)),
                "other": other,
                "share": torch.rand(s.batch, generator=generator),
            }
            found = self._update({REWARD: batch})[0][REWARD]
            right += float(
                (found["expert"] > 0).float().mean() + (found["other"] < 0).float().mean()
            )
        self.note("told_apart", right / (2 * s.steps))

    def _drawn(self, generator: torch.Generator) -> Steps:
        """The iteration's second batch of demonstrations, each with z from q."""
        all_of = self.material.demonstrations
        count = min(self.material.settings.trajectories, len(all_of.x))
        chosen = all_of.take(torch.randperm(len(all_of.x), generator=generator)[:count])
        return chosen.steps(chosen.contexts(self.q, generator), self.networks.policy)


def _some(of: int, count: int, generator: torch.Generator) -> Tensor:
    return torch.randint(of, (count,), generator=generator)


class AdversarialPPO(AdversarialLearner, PPOLearner):
    """With PPO."""


class AdversarialTRPO(AdversarialLearner, TRPOLearner):
    """With TRPO."""
