"""How do keywords, or RLlib's one mapping, become the settings of an environment?"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from envs.checks import choice, need

S = TypeVar("S")


def split_config(
    kind: type[S], config: Mapping[str, Any] | None, keywords: Mapping[str, Any]
) -> tuple[S, int]:
    """Return settings of a kind, and num_envs (1 where it is not given).

    `settings`, where given, holds a whole object of that kind and goes alone.

    Raises
    ------
    ValueError : for a setting that there is not, with the nearest name.
    """
    given = {**(config or {}), **keywords}
    count = given.pop("num_envs", 1)
    need(isinstance(count, int) and count > 0, f"num_envs is {count!r}; it must be 1 or more.")
    whole = given.pop("settings", None)
    if whole is not None:
        need(isinstance(whole, kind), f"settings must be a {kind.__name__}, not {whole!r}.")
        need(not given, f"settings is given, so {', '.join(given)} cannot be given beside it.")
        return whole, count
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    for name in given:
        choice(f"A setting of {kind.__name__}", name, known)
    return kind(**given), count
