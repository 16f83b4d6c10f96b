"""Proximal policy optimisation of whole rollouts (arXiv 1707.06347, eq. 7 and 9)."""

from collections.abc import Mapping
from typing import Any

import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from torch import Tensor
from torch.nn import functional

from trainers.control.networks import log_density
from trainers.control.rl.learner import RolloutLearner, Samples, all_summed, divergence
from trainers.control.rl.module import LOG_SD, MEAN, VALUE


class PPOLearner(RolloutLearner):
    """Epochs of minibatches, ended once the policy has moved `divergence` away."""

    def optimise(self, samples: Samples, generator: torch.Generator) -> None:
        """Take the epochs; every learner takes as many steps, whatever rows it holds."""
        s, count = self.settings, len(samples.returns)
        steps = max(1, round(float(all_summed(torch.tensor(float(count)))) / s.minibatch))
        epochs, moved = 0, torch.zeros(2)
        while epochs < s.epochs and moved[0] <= s.divergence * moved[1]:
            epochs += 1
            order = torch.randperm(count, generator=generator)
            moved = torch.zeros(2)
            for rows in torch.tensor_split(order, steps):
                batch = samples.take(rows)
                found = self._update({DEFAULT_MODULE_ID: batch})[0][DEFAULT_MODULE_ID]
                with torch.no_grad():
                    away = divergence(batch["mean"], batch["log_sd"], found[MEAN], found[LOG_SD])
                moved += torch.tensor([float(away.sum()), float(len(rows))])
            moved = all_summed(moved)
        self.note("epochs", float(epochs))
        self.note("divergence", float(moved[0] / moved[1]))

    def loss(self, batch: Mapping[str, Any], found: Mapping[str, Any]) -> Tensor:
        """The clipped surrogate, the value's loss and the entropy of a minibatch, a scalar."""
        s = self.settings
        mean, log_sd = found[MEAN], found[LOG_SD]
        ratio = torch.exp(log_density(mean, log_sd, batch["actions"]) - batch["log_prob"])
        better = batch["advantages"]
        surrogate = torch.minimum(
            ratio * better, ratio.clamp(1 - s.clip, 1 + s.clip) * better
        ).mean()
        value = functional.smooth_l1_loss(found[VALUE], batch["returns"])
        total: Tensor = -surrogate + s.value_weight * value - s.entropy * log_sd.sum()
        return total
