"""TRPO beside that of sb3-contrib (MIT licence): same task, networks, rollouts and divergence."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from gymnasium.vector import VectorWrapper

from benchmarks.ppo_speed import adapted
from cluster.evidence import interval
from cluster.session import Session
from envs.interface import ProcessVectorEnv
from trainers.control.networks import Units
from trainers.control.plants import PlantSettings, environment, units
from trainers.control.rl.algorithm import PolicyOptimisation, configure, optimise
from trainers.control.rl.module import module_spec
from trainers.control.rl.settings import PolicySettings

peer = pytest.importorskip("sb3_contrib")

PLANT = PlantSettings(observe=("CA", "T", "TC", "b", "error"), modes=(90.0,))
VALVE = Units([0.3], [0.25])
S = PolicySettings(
    algorithm="trpo", rows=32, samples=60, iterations=30, minibatch=480, epochs=4, divergence=0.01
)
SEEDS, LAST = range(5), 5


class Scaled(VectorWrapper):
    """The plant in the units that our networks have inside them; keeps each rollout's return."""

    def __init__(self, env: ProcessVectorEnv, seed: int) -> None:
        super().__init__(env)
        self.seed = seed
        self.single_action_space = Box(-100.0, 100.0, (1,), np.float32)
        self.returns: list[float] = []

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, Any]:
        self.returns.append(0.0)
        return self.env.reset(seed=None if seed is None else self.seed, options=options)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        given = np.clip(VALVE.centre[0] + VALVE.width[0] * actions, 0.0, 1.0).astype(np.float32)
        seen, reward, ended, cut, info = self.env.step(given)
        self.returns[-1] += float(reward.mean())
        return seen, reward * S.reward_scale, ended, cut, info


def ours(seed: int) -> list[float]:
    """Mean return of every rollout."""
    spec = module_spec(units(PLANT)[0], VALVE, 0, S.hidden, S.log_sd)
    algorithm: PolicyOptimisation = configure(S, PLANT, spec, seed).build_algo()
    found = [figures["return"] for figures in optimise(algorithm)]
    algorithm.stop()
    return found


def theirs(seed: int) -> list[float]:
    assert S.samples is not None
    env = Scaled(environment(PLANT, S.rows, scaled=True, samples=S.samples), seed)
    model = peer.TRPO(
        "MlpPolicy", adapted(env), learning_rate=lambda left: S.lr * left, n_steps=S.samples,
        batch_size=S.minibatch, gamma=S.gamma, gae_lambda=S.trace, n_critic_updates=S.epochs,
        target_kl=S.divergence, seed=seed, device="cpu",
        policy_kwargs={"net_arch": list(S.hidden), "log_std_init": S.log_sd},
    )  # fmt: skip
    model.learn(S.iterations * S.rows * S.samples)
    return env.returns[: S.iterations]


@pytest.mark.slow
def test_trpo_learns_as_much_from_as_many_samples_as_its_peer(ray_session: Session) -> None:
    ray_session.ensure()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        both = [np.array([run(seed) for seed in SEEDS]) for run in (ours, theirs)]
    finally:
        torch.set_num_threads(threads)
    assert both[0].shape == both[1].shape == (len(SEEDS), S.iterations)
    (mean, _, high), (peers, low, _) = (interval(r[:, -LAST:].mean(1)) for r in both)
    assert high is not None
    assert low is not None
    assert high >= low, (mean, peers)
    for returns in both:  # neither has merely stood still
        assert (returns[:, -LAST:].mean(1) > returns[:, 0]).all()
