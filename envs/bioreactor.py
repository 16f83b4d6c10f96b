"""The fed-batch bioreactor as Gymnasium environments: one, and many at once."""

from collections.abc import Mapping
from typing import Any

from envs.bioreactor_settings import BioreactorSettings
from envs.interface import ProcessEnv, ProcessVectorEnv
from envs.settings import split_config


class BioreactorEnv(ProcessEnv):
    """One bioreactor; keywords are those of `BioreactorSettings`, or `settings` holds them all.

    Raises
    ------
    ValueError : for settings that cannot be; see `ProcessEnv` for what a step raises.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, **settings: Any) -> None:
        from envs.bioreactor_simulation import BioreactorSimulation  # brings numba: slow to import

        chosen, _ = split_config(BioreactorSettings, config, settings)
        super().__init__(BioreactorSimulation(chosen, 1))


class BioreactorVectorEnv(ProcessVectorEnv):
    """`num_envs` bioreactors; keywords as for `BioreactorEnv`.

    Parameters
    ----------
    config : the same keywords, num_envs among them, as one mapping, which is how RLlib hands them
        over (`gym_env_vectorize_mode="vector_entry_point"`).
    """

    def __init__(self, config: Mapping[str, Any] | None = None, **settings: Any) -> None:
        from envs.bioreactor_simulation import BioreactorSimulation  # brings numba: slow to import

        chosen, count = split_config(BioreactorSettings, config, settings)
        super().__init__(BioreactorSimulation(chosen, count))
