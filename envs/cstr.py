"""The stirred-tank reactor as Gymnasium environments: one, and many at once."""

from collections.abc import Mapping
from typing import Any

from envs.cstr_settings import CSTRSettings
from envs.interface import ProcessEnv, ProcessVectorEnv
from envs.settings import split_config


class CSTREnv(ProcessEnv):
    """One reactor; keywords are those of `CSTRSettings`, or `settings` holds them all.

    Raises
    ------
    ValueError : for settings that cannot be; see `ProcessEnv` for what a step raises.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, **settings: Any) -> None:
        from envs.cstr_simulation import CSTRSimulation  # brings numba, which is slow to import

        chosen, _ = split_config(CSTRSettings, config, settings)
        super().__init__(CSTRSimulation(chosen, 1))


class CSTRVectorEnv(ProcessVectorEnv):
    """`num_envs` reactors; keywords as for `CSTREnv`.

    Parameters
    ----------
    config : the same keywords, num_envs among them, as one mapping, which is how RLlib hands them
        over (`gym_env_vectorize_mode="vector_entry_point"`).
    """

    def __init__(self, config: Mapping[str, Any] | None = None, **settings: Any) -> None:
        from envs.cstr_simulation import CSTRSimulation  # brings numba, which is slow to import

        chosen, count = split_config(CSTRSettings, config, settings)
        super().__init__(CSTRSimulation(chosen, count))
