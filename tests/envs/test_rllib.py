"""RLlib's own env runner samples whole episodes from the vector environment."""

from typing import Any

import numpy as np
import pytest

from envs.bioreactor import BioreactorVectorEnv
from envs.bioreactor_plant import INTERVALS


def test_rllib_samples_complete_episodes() -> None:
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

    config: Any = (
        PPOConfig()
        .environment(BioreactorVectorEnv, env_config={"mode": 1})
        .env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=4,
            gym_env_vectorize_mode="vector_entry_point",
        )
    )
    runner = SingleAgentEnvRunner(config=config)
    episodes = runner.sample(num_episodes=12, random_actions=True)
    done = [episode for episode in episodes if episode.is_done]
    assert len(done) == 12
    for episode in done:
        obs = np.array(episode.get_observations())
        assert len(episode) == INTERVALS  # the reset's step is not counted, and none is lost
        assert obs[0].tolist() == [1, 0, 1]
        assert obs[-1, 2] == pytest.approx(0, abs=1e-6)
        moves = 0.01 * np.abs(np.diff(np.array(episode.get_actions()), axis=0)).sum()
        assert episode.get_return() == pytest.approx(obs[-1, 1] - moves, abs=1e-5)
        assert {info["mode"] for info in episode.get_infos()} == {1}
