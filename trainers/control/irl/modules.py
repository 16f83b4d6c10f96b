"""Which modules does the learner train beside the policy? Discriminator and q, for RLlib."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule

from trainers.control.inference import PooledEncoder
from trainers.control.irl.discriminator import Discriminator

REWARD, INFERENCE = "reward", "inference"
"""Ids of the modules."""


class RewardModule(TorchRLModule):  # type: ignore[misc]  # RLlib has no types
    """D. Its model_config holds the keywords of `Discriminator`.

    A batch holds `expert`, `other` (`Steps`) and `share`, or `steps` of whole rollouts and `rows`.
    """

    def setup(self) -> None:
        """Make the network; RLlib's constructor calls this."""
        self.discriminator = Discriminator(**self.model_config)

    def _forward(self, batch: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        d = self.discriminator
        if "steps" in batch:
            total = torch.zeros(len(batch["log_q"])).index_add(
                0, batch["rows"], d.worth(batch["steps"])
            )
            return {"total": total}
        expert, other = batch["expert"], batch["other"]
        slope = d.slope(expert, other, batch["share"])
        return {"expert": d(expert), "other": d(other), "slope": slope}


class InferenceModule(TorchRLModule):  # type: ignore[misc]
    """q(z | tau). Its model_config holds the keywords of `PooledEncoder`."""

    def setup(self) -> None:
        """Make the network; RLlib's constructor calls this."""
        self.q = PooledEncoder(**self.model_config)

    def _forward(self, batch: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        return {
            "log_q": self.q.log_prob(self.q(batch["x"], batch["a"], batch["valid"]), batch["z"])
        }


def spec(module: type[TorchRLModule], size: int, /, **config: Any) -> RLModuleSpec:
    """What RLlib makes one of these modules from; it wants spaces, which no one looks at."""
    box = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
    return RLModuleSpec(
        module_class=module, observation_space=box, action_space=box, model_config=config
    )
