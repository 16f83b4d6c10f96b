"""How does training go on? Rollout, update, weights to the env runners; and what is kept of it."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import (
    COMPONENT_LEARNER,
    COMPONENT_RL_MODULE,
    DEFAULT_MODULE_ID,
)
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME
from torch import Tensor

from trainers.control.moments import Arrays, prefixed, under
from trainers.control.plants import PlantSettings
from trainers.control.rl.learner import SETTINGS, RolloutLearner
from trainers.control.rl.module import PolicyModule
from trainers.control.rl.ppo import PPOLearner
from trainers.control.rl.rollout import Contexts, Rollout
from trainers.control.rl.runner import RolloutRunner
from trainers.control.rl.settings import PolicySettings
from trainers.control.rl.trpo import TRPOLearner


class PolicyOptimisation(Algorithm):  # type: ignore[misc]  # RLlib's classes have no types
    """RLlib's algorithm over whole rollouts.

    All that is random in an iteration follows from the seed and the iteration's number, so that a
    training that was taken up again goes on as it would have.

    Attributes
    ----------
    done : iterations so far.
    """

    done: int = 0

    @property
    def settings(self) -> PolicySettings:
        """The recipe's."""
        found: PolicySettings = self.config.learner_config_dict[SETTINGS]
        return found

    def contexts(self) -> Contexts:
        """What the rows of the next rollout are: every mode in turn, and no z."""
        rows = self.settings.rows
        modes = len(self.config.env_config["plant"].levels)
        return Contexts(np.zeros((rows, 0), np.float32), np.arange(rows) % modes)

    def training_step(self) -> None:
        """Take one rollout and learn from it."""
        rollout = self.rollout(self.contexts())
        self.learn(rollout)

    def rollout(self, contexts: Contexts) -> Rollout:
        """Sample on all env runners at once, and put the rows together in their order."""
        group, seed = self.env_runner_group, self.draw("rollout")
        runners = max(1, self.config.num_env_runners)

        def sampled(runner: RolloutRunner) -> tuple[int, Rollout]:
            index = max(0, runner.worker_index - 1)
            return index, runner.sample(
                contexts=contexts.part(index, runners), seed=(seed + index) % 2**63
            )

        remote = self.config.num_env_runners > 0
        found = dict(group.foreach_env_runner(sampled, local_env_runner=not remote))
        if len(found) < runners:
            raise RuntimeError(
                f"{runners - len(found)} of {runners} env runners did not answer in iteration "
                f"{self.done}; resume the run to go on from its last checkpoint"
            )
        return Rollout.joined([found[index] for index in range(runners)])

    def learn(self, rollout: Rollout) -> None:
        """Update the modules and send the policy to the env runners."""
        s = self.settings
        samples = self.config.env_config["samples"]
        self.found = self.learner_group.update(
            batch=rollout.to_batch(),
            timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: (self.done + 1) * s.rows * samples},
            seed=self.draw("update"),
        )
        self.found_rollout = rollout
        self.done += 1
        self._sync()

    def draw(self, purpose: str) -> int:
        """The seed of a purpose in this iteration."""
        key = [self.config.seed, self.done, *purpose.encode()]
        return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] % 2**62)

    def figures(self) -> dict[str, float]:
        """What the last update reported, and the mean reward of its rollout's episodes."""
        own = self.found[0].get(DEFAULT_MODULE_ID, {})
        found = {name: float(_plain(value)) for name, value in own.items()}
        return {"return": float(self.found_rollout.rewards.sum(1).mean()), **found}

    def networks(self) -> PolicyModule:
        """A copy of the policy and value as they are now."""
        module: PolicyModule = self.config.env_config["policy"].build()
        module.set_state(self._weights()[DEFAULT_MODULE_ID])
        return module

    def snapshot(self) -> Arrays:
        """Weights and optimisers of all modules, as arrays; see `restore_snapshot`."""
        arrays: Arrays = {"done": np.array(self.done)}
        for module, weights in self._weights().items():
            arrays |= {f"module/{module}/{name}": value for name, value in weights.items()}
        arrays |= prefixed("adam", self._foreach_learner(RolloutLearner.moments)[0])
        return {name: np.array(value) for name, value in arrays.items()}

    def set_weights_of(self, modules: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Give some of the weights of some modules other values, such as a clone's."""
        state = self._weights()
        for module, weights in modules.items():
            state[module] |= {name: value.numpy().copy() for name, value in weights.items()}

        def take(learner: RolloutLearner) -> None:
            learner.set_state({COMPONENT_RL_MODULE: state})

        self._foreach_learner(take)
        self._sync()

    def restore_snapshot(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on where `snapshot` was taken."""
        modules = {
            module: {name: np.array(arrays[f"module/{module}/{name}"]) for name in weights}
            for module, weights in self._weights().items()
        }
        adam = under("adam", arrays)

        def take(learner: RolloutLearner) -> None:
            learner.set_state({COMPONENT_RL_MODULE: modules})
            learner.set_moments(adam)

        self._foreach_learner(take)
        self.done = int(arrays["done"])
        self._sync()

    def _sync(self) -> None:
        """Send policy and value to the env runners."""
        self.env_runner_group.sync_weights(
            from_worker_or_learner_group=self.learner_group,
            policies=[DEFAULT_MODULE_ID],
            inference_only=False,
        )

    def _foreach_learner(self, function: Any) -> list[Any]:
        return [result.get() for result in self.learner_group.foreach_learner(function)]

    def _weights(self) -> dict[str, dict[str, NDArray[Any]]]:
        state = self.learner_group.get_state(components=COMPONENT_LEARNER)[COMPONENT_LEARNER]
        found: dict[str, dict[str, NDArray[Any]]] = state[COMPONENT_RL_MODULE]
        return found


def _plain(value: Any) -> Any:
    return value.peek() if hasattr(value, "peek") else value


class PolicyConfig(AlgorithmConfig):  # type: ignore[misc]
    """RLlib's configuration, whose policy is the one of its env_config."""

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """Return the policy's; RLlib asks for it before it looks at the modules that were set."""
        return self.env_config["policy"]


def configure(
    settings: PolicySettings,
    plant: PlantSettings,
    policy: RLModuleSpec,
    seed: int,
    *,
    algorithm: type[PolicyOptimisation] = PolicyOptimisation,
    learner: type[RolloutLearner] | None = None,
    learner_config: Mapping[str, Any] | None = None,
    others: Mapping[str, RLModuleSpec] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Any:
    """RLlib's configuration of a training; `.build_algo()` makes the algorithm.

    Parameters
    ----------
    plant, changes : what is simulated; see `trainers.control.plants.task`.
    policy : the module of policy and value; see `module_spec`.
    others : modules of the learner that no env runner needs.
    learner : by default that of `settings.algorithm`.
    learner_config : what the learner finds in its learner_config_dict, besides `settings`.
    """
    _spare_the_terminal()
    samples = settings.samples or plant.samples
    total = settings.iterations * settings.rows * samples
    return (
        PolicyConfig(algo_class=algorithm)
        # A gradient that is no number is not looked for at every step: the next rollout finds it.
        .framework("torch", torch_skip_nan_gradients=True)
        .env_runners(
            env_runner_cls=RolloutRunner,
            num_env_runners=settings.runners,
            create_local_env_runner=settings.runners == 0,
        )
        .environment(
            env_config={
                "plant": plant,
                "changes": dict(changes or {}),
                "samples": samples,
                "policy": policy,
            },
            disable_env_checking=True,
        )
        .learners(
            num_learners=settings.learners,
            learner_class=learner or learner_of(settings),
            learner_config_dict={SETTINGS: settings, **(learner_config or {})},
        )
        .rl_module(
            rl_module_spec=MultiRLModuleSpec(
                rl_module_specs={DEFAULT_MODULE_ID: policy, **(others or {})}
            )
        )
        .training(
            lr=[[0, settings.lr], [total, 0.0]],
            gamma=settings.gamma,
            grad_clip=settings.grad_clip,
            grad_clip_by="global_norm",
        )
        .debugging(seed=seed)
    )


def _spare_the_terminal() -> None:
    """Leave RLlib's warnings to the run's log; its own handler came with the import."""
    for handler in logging.getLogger("ray.rllib").handlers:
        if not isinstance(handler, logging.FileHandler):
            handler.setLevel(logging.ERROR)


def learner_of(settings: PolicySettings) -> type[RolloutLearner]:
    """The learner of `settings.algorithm`."""
    return {"ppo": PPOLearner, "trpo": TRPOLearner}[settings.algorithm]


def optimise(algorithm: PolicyOptimisation) -> Iterator[dict[str, float]]:
    """Take the iterations that are left, and yield each one's figures."""
    while algorithm.done < algorithm.settings.iterations:
        algorithm.training_step()
        yield algorithm.figures()
