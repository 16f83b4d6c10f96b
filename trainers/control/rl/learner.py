"""How is a rollout learnt from? The part that PPO and TRPO share: rewards, values, advantages.

RLlib's `Learner` holds modules, optimisers and schedules, and adds up gradients over several
learners. Its own update walks fixed minibatches of prepared columns. This one is handed whole
rollouts, so that a subclass may look at them first, and may end its epochs early.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from torch import Tensor, distributed

from trainers.control.moments import Arrays, moments, prefixed, set_moments, under
from trainers.control.networks import log_density
from trainers.control.rl.advantages import advantages
from trainers.control.rl.module import PolicyModule
from trainers.control.rl.rollout import Rollout
from trainers.control.rl.settings import PolicySettings

SETTINGS = "settings"
"""Key of the learner_config_dict under which `PolicySettings` are."""


@dataclass(frozen=True)
class Samples:
    """The valid samples of a rollout, in one row each.

    Attributes
    ----------
    obs : (N, k + c); actions, mean : (N, a); log_sd : (a,).
    log_prob : (N,), of the actions under the policy that drew them.
    advantages : (N,), centred and scaled over all learners' samples.
    returns : (N,), what the value should have been.
    """

    obs: Tensor
    actions: Tensor
    mean: Tensor
    log_sd: Tensor
    log_prob: Tensor
    advantages: Tensor
    returns: Tensor

    def take(self, rows: Tensor) -> dict[str, Tensor]:
        """Columns of these samples, as a module's batch."""
        columns = {name: column[rows] for name, column in vars(self).items() if name != "log_sd"}
        return {**columns, "log_sd": self.log_sd}


class RolloutLearner(TorchLearner):  # type: ignore[misc]  # RLlib's classes have no types
    """Base of the learners that are updated by `update(batch=rollout.to_batch(), ...)`."""

    @property
    def settings(self) -> PolicySettings:
        """The recipe's."""
        found: PolicySettings = self.config.learner_config_dict[SETTINGS]
        return found

    @property
    def networks(self) -> PolicyModule:
        """Policy and value, whether or not several learners share them."""
        found: PolicyModule = self.module[DEFAULT_MODULE_ID].unwrapped()
        return found

    def rewards(self, rollout: Rollout, generator: torch.Generator) -> Tensor:
        """Rewards (n, T) to learn from; by default the environment's."""
        del generator
        return torch.from_numpy(rollout.rewards)

    def prepare(self, rollout: Rollout, generator: torch.Generator) -> Samples:
        """Value every sample of a rollout."""
        rewards = self.rewards(rollout, generator) * self.settings.reward_scale
        valid, obs = torch.from_numpy(rollout.valid), torch.from_numpy(rollout.obs)
        with torch.no_grad():
            values = self.networks.value(obs)
        better = advantages(
            rewards, values, valid, torch.from_numpy(rollout.terminated),
            self.settings.gamma, self.settings.trace,
        )  # fmt: skip
        actions, mean = torch.from_numpy(rollout.actions), torch.from_numpy(rollout.mean)
        log_sd = torch.from_numpy(rollout.log_sd)
        return Samples(
            obs[:, :-1][valid], actions[valid], mean[valid], log_sd,
            log_density(mean, log_sd, actions)[valid],
            standardised(better[valid]), (better + values[:, :-1])[valid],
        )  # fmt: skip

    def update(
        self, *, training_data: Any = None, timesteps: dict[str, Any] | None = None, **options: Any
    ) -> Any:
        """Learn from a rollout, and return RLlib's metrics.

        Parameters
        ----------
        training_data : holds the batch of `Rollout.to_batch`, or a learner's share of it.
        options : `seed`, of every draw of this update; others are RLlib's and do not matter here.
        """
        self.before_gradient_based_update(timesteps=timesteps or {})
        training_data.solve_refs()
        self._weights_seq_no += 1
        rollout = Rollout.from_batch(training_data.batch.policy_batches[DEFAULT_MODULE_ID])
        generator = torch.Generator().manual_seed(options["seed"])
        samples = self.prepare(rollout, generator)
        self.note("samples", float(len(samples.returns)))
        self.optimise(samples, generator)
        self.after_gradient_based_update(timesteps=timesteps or {})
        return self.metrics.reduce()

    @abstractmethod
    def optimise(self, samples: Samples, generator: torch.Generator) -> None:
        """Move policy and value."""

    def note(self, name: str, value: float, module: str = DEFAULT_MODULE_ID) -> None:
        """Log the newest value of a metric."""
        self.metrics.log_value((module, name), value, window=1)

    def moments(self) -> Arrays:
        """Rates and moments of every optimiser, under its name.

        RLlib's own state of an optimiser loses both on the way back: numbers of parameters return
        as tensors, under which no moment is found, and the rate in single precision.
        """
        found: Arrays = {}
        for name, optimizer in self._named_optimizers.items():
            found |= prefixed(name, moments(optimizer))
        return found

    def set_moments(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `moments` returned."""
        for name, optimizer in self._named_optimizers.items():
            set_moments(optimizer, under(name, arrays))

    def compute_loss_for_module(
        self,
        *,
        module_id: str,
        batch: Mapping[str, Any],
        fwd_out: Mapping[str, Any],
        **_: Any,
    ) -> Tensor:
        """The loss of a module's minibatch, a scalar; RLlib asks for it in each step."""
        del module_id
        return self.loss(batch, fwd_out)

    @abstractmethod
    def loss(self, batch: Mapping[str, Any], found: Mapping[str, Any]) -> Tensor:
        """The loss of a minibatch of `Samples.take` and what the networks said of it."""

    def compute_gradients(self, loss_per_module: Mapping[str, Tensor], **_: Any) -> dict[Any, Any]:
        """Gradients of the modules that the losses depend on; others are left alone."""
        found = super().compute_gradients(loss_per_module)
        return {key: gradient for key, gradient in found.items() if gradient is not None}


def standardised(values: Tensor) -> Tensor:
    """Centre and scale values over all learners' samples.

    Raises
    ------
    ValueError : where they are no finite numbers, or too large to be squared.
    """
    sums = all_summed(
        torch.stack([torch.tensor(float(len(values))), values.sum(), values.square().sum()])
    )
    if not torch.isfinite(sums).all():
        raise ValueError("The value of what is seen is not a finite number.")
    mean = sums[1] / sums[0]
    return (values - mean) / torch.sqrt((sums[2] / sums[0] - mean.square()).clamp_min(1e-12))


def all_summed(values: Tensor) -> Tensor:
    """Add a tensor up over all learners; with one learner it is what it was."""
    if distributed.is_available() and distributed.is_initialized():
        values = values.clone()
        distributed.all_reduce(values)
    return values


def divergence(mean: Tensor, log_sd: Tensor, new_mean: Tensor, new_log_sd: Tensor) -> Tensor:
    """KL(old || new) of Gaussians with their own deviations, (n,), nats."""
    ratio = torch.exp(2 * (log_sd - new_log_sd))
    moved = (new_mean - mean).square() * torch.exp(-2 * new_log_sd)
    return (new_log_sd - log_sd + 0.5 * (ratio + moved - 1)).sum(-1)
