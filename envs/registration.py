"""Under which names does Gymnasium know the environments?

Importing this module registers them, which Gymnasium also does itself for a name such as
`gymnasium.make("envs.registration:corymb/CSTR-v0")`.
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
            gymnasium.register(name, one, order_enforce=False, vector_entry_point=many)


register()
