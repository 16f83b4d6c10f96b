"""How many samples does PPO learn from in a CPU-second, beside stable-baselines3?

    python -m benchmarks.ppo_speed [--quick]

Both train the same networks with the same rollouts, minibatches and epochs on the same compiled
vector environment, in turns in one process on one thread. The peer (MIT licence) is not a
dependency: `pip install -e '.[peers]'`.
"""

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from benchmarks.evidence import Claim, keep, print_claims
from cluster.config import ClusterSettings
from cluster.evidence import interval
from cluster.session import Session
from trainers.control.expert.config import Config
from trainers.control.expert.train import algorithm_of
from trainers.control.plants import environment
from trainers.control.rl.settings import PolicySettings


def rollout(config: Config) -> tuple[int, int]:
    """Rows of an iteration, and samples of each."""
    return config.policy.rows, config.policy.samples or config.plant.samples


def ours(config: Config) -> Callable[[int], None]:
    """Return what takes a number of iterations on RLlib with whole rollouts."""
    algorithm = algorithm_of(config, 0)

    def train(iterations: int) -> None:
        for _ in range(iterations):
            algorithm.training_step()

    return train


def peer(config: Config) -> Callable[[int], None]:
    """Return the same with stable-baselines3."""
    from stable_baselines3 import PPO

    settings, (rows, samples) = config.policy, rollout(config)
    env = adapted(environment(config.full_plant, rows, samples=samples))
    model = PPO(
        "MlpPolicy", env, n_steps=samples, batch_size=settings.minibatch, n_epochs=settings.epochs,
        gamma=settings.gamma, learning_rate=settings.lr,
        policy_kwargs={"net_arch": list(settings.hidden)}, device="cpu", seed=0,
    )  # fmt: skip

    def train(iterations: int) -> None:
        model.learn(iterations * rows * samples, reset_num_timesteps=False)

    return train


def adapted(env: VectorEnv[Any, Any, Any]) -> Any:  # noqa: C901  # the peer's interface has as many methods
    """The vector environment as the peer wants it: a row's next episode begins in its last step."""
    from stable_baselines3.common.vec_env import VecEnv

    class Adapted(VecEnv):  # type: ignore[misc]  # the peer need not be installed
        def __init__(self) -> None:
            super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

        def reset(self) -> np.ndarray:
            seen: np.ndarray = env.reset(seed=0)[0]
            return seen

        def step_async(self, actions: np.ndarray) -> None:
            self._actions = actions

        def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
            seen, reward, ended, cut, _ = env.step(self._actions)
            over = ended | cut
            infos: list[dict[str, Any]] = [{} for _ in range(env.num_envs)]
            if over.any():
                for i in np.flatnonzero(over):
                    infos[i] = {"terminal_observation": seen[i], "TimeLimit.truncated": True}
                seen, _ = env.reset(options={"reset_mask": over})
            return seen, reward.astype(np.float32), over, infos

        def close(self) -> None:
            env.close()

        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            return [None] * env.num_envs

        # VecEnv declares the next two abstract, but training calls neither: a call would mean that
        # the peer does something else than what is timed.
        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
            raise NotImplementedError

        def env_method(self, method_name: str, *_: Any, **__: Any) -> list[Any]:
            raise NotImplementedError

        def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
            return [False] * env.num_envs

    return Adapted()


def rate(train: Callable[[int], None], iterations: int, samples: int) -> float:
    """Samples a CPU-second, of iterations with so many samples each."""
    begin = time.process_time()
    train(iterations)
    return iterations * samples / (time.process_time() - begin)


def main() -> None:
    """Measure in turns, keep, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="few iterations, under a minute")
    quick: bool = parser.parse_args().quick
    iterations, turns = (3, 3) if quick else (10, 7)
    torch.set_num_threads(1)
    settings = PolicySettings(iterations=300, rows=128, samples=100, epochs=6)
    config = Config(recipe="expert", expert="learnt", policy=settings)
    samples = math.prod(rollout(config))
    with Session(ClusterSettings(num_cpus=1)):
        both = {"corymb": ours(config), "stable-baselines3": peer(config)}
        for train in both.values():
            train(2)
        found = [
            {name: rate(train, iterations, samples) for name, train in both.items()}
            for _ in range(turns)
        ]
    ratios = [turn["corymb"] / turn["stable-baselines3"] for turn in found]
    mean, low, high = interval(ratios)
    beside = {name: float(np.mean([turn[name] for turn in found])) for name in both}
    claims = [Claim("ratio_to_sb3", mean, 1.0, "higher", beside, low, high)]
    keep("ppo_speed", claims, [0], found, quick=quick)
    print_claims(claims)


if __name__ == "__main__":
    main()
