"""Who samples? An env runner of RLlib that hands over one whole rollout at a time."""

from typing import Any

from ray.rllib.core import COMPONENT_RL_MODULE, DEFAULT_MODULE_ID
from ray.rllib.env import INPUT_ENV_SPACES
from ray.rllib.env.env_runner import EnvRunner

from envs.interface import ProcessVectorEnv
from trainers.control.plants import environment
from trainers.control.rl.module import PolicyModule
from trainers.control.rl.rollout import Contexts, Rollout, roll_out


class RolloutRunner(EnvRunner):  # type: ignore[misc]  # RLlib has no types
    """Samples what its env_config says: `plant`, `changes`, `samples`, and the module `policy`.

    The environment is made anew only when the number of rows changes.
    """

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        self.make_module()
        self.make_env()

    def make_env(self, rows: int = 1) -> None:
        """Make that many plants."""
        given = self.config.env_config
        self.env: ProcessVectorEnv = environment(given["plant"], rows, **given["changes"])

    def make_module(self) -> None:
        """Make the networks; their weights come with `set_state`."""
        self.module: PolicyModule = self.config.env_config["policy"].build()

    def sample(self, *, contexts: Contexts, seed: int, **_: Any) -> Rollout:
        """Return one episode for each row of `contexts`; see `roll_out`."""
        rows = len(contexts.mode)
        if self.env.num_envs != rows:
            self.make_env(rows)
        samples = self.config.env_config["samples"]
        return roll_out(self.env, self.module.policy, contexts, samples, seed)

    def get_state(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return the weights, as RLlib's groups exchange them."""
        return {COMPONENT_RL_MODULE: {DEFAULT_MODULE_ID: self.module.get_state()}}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take over weights."""
        if COMPONENT_RL_MODULE in state:
            self.module.set_state(state[COMPONENT_RL_MODULE][DEFAULT_MODULE_ID])

    def get_spaces(self) -> dict[str, tuple[Any, Any]]:
        """Return the spaces of environment and module."""
        outside = self.env.single_observation_space, self.env.single_action_space
        inside = self.module.observation_space, self.module.action_space
        return {INPUT_ENV_SPACES: outside, DEFAULT_MODULE_ID: inside}

    def get_metrics(self) -> dict[str, Any]:
        """Return RLlib's own figures of the runner."""
        found: dict[str, Any] = self.metrics.reduce()
        return found

    def assert_healthy(self) -> None:
        """Raise AssertionError if there is nothing to sample."""
        assert self.env is not None, "the environment was not made"
