"""Which networks does the learner train? The policy and its value, as one module of RLlib."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule

from trainers.control.networks import GaussianPolicy, Units, Value

MEAN, LOG_SD, VALUE = "mean", "log_sd", "value"


class PolicyModule(TorchRLModule):  # type: ignore[misc]  # RLlib has no types
    """pi(u | x, z) and V(x, z).

    Its model_config holds `observations` and `actions` (`Units`), `context`, `hidden`, `log_sd`.

    Attributes
    ----------
    policy, value : the networks.
    """

    def setup(self) -> None:
        """Make both networks; RLlib's constructor calls this."""
        of: Mapping[str, Any] = self.model_config
        self.policy = GaussianPolicy(
            of["observations"], of["actions"], of["context"], of["hidden"], of["log_sd"]
        )
        self.value = Value(of["observations"], of["context"], of["hidden"])

    def _forward(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        x = batch[Columns.OBS]
        return {MEAN: self.policy(x), LOG_SD: self.policy.log_sd, VALUE: self.value(x)}


def module_spec(
    observations: Units, actions: Units, context: int, hidden: tuple[int, ...], log_sd: float
) -> RLModuleSpec:
    """What RLlib makes the module from."""
    count = len(observations.centre) + context
    return RLModuleSpec(
        module_class=PolicyModule,
        observation_space=gymnasium.spaces.Box(-np.inf, np.inf, (count,), np.float32),
        action_space=gymnasium.spaces.Box(-np.inf, np.inf, (len(actions.centre),), np.float32),
        model_config={
            "observations": observations,
            "actions": actions,
            "context": context,
            "hidden": hidden,
            "log_sd": log_sd,
        },
    )
