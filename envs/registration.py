"""Under which names does Gymnasium know the environments?

Installed, the package's entry point in the group `gymnasium.envs` registers them as soon as
Gymnasium is imported; from a bare checkout, call `register()`.
"""

import gymnasium

CSTR = "corymb/CSTR-v0"
BIOREACTOR = "corymb/Bioreactor-v0"

_ENVS = {
    CSTR: ("envs.cstr:CSTREnv", "envs.cstr:CSTRVectorEnv"),
    BIOREACTOR: ("envs.bioreactor:BioreactorEnv", "envs.bioreactor:BioreactorVectorEnv"),
}


def register() -> None:
    """Register `corymb/CSTR-v0` and `corymb/Bioreactor-v0`; a second call changes nothing.

    Both end their episodes themselves and complain themselves about a missing reset.
    """
    for name, (one, many) in _ENVS.items():
        if name not in gymnasium.registry:
            gymnasium.register(
                name, entry_point=one, vector_entry_point=many, order_enforce=False
            )  # fmt: skip
