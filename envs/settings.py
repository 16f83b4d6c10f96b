"""How do keywords, or RLlib's one mapping, become the settings of an environment?"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, TypeVar

from envs.checks import choice, need

S = TypeVar("S")

PARTS = "parts"
"""Key of a field's metadata: the class of which the field holds a sequence."""


def split_config(
    kind: type[S], config: Mapping[str, Any] | None, keywords: Mapping[str, Any]
) -> tuple[S, int]:
    """Return settings of a kind, and num_envs (1 where it is not given).

    `settings`, where given, holds a whole object of that kind and goes alone.

    Raises
    ------
    ValueError : for a setting that there is not, with the nearest name, or of another kind.
    """
    given = {**(config or {}), **keywords}
    count = given.pop("num_envs", 1)
    need(isinstance(count, int) and count > 0, f"num_envs is {count!r}; it must be 1 or more.")
    whole = given.pop("settings", None)
    if whole is None:
        return build(kind, given), count
    need(isinstance(whole, kind), f"settings must be a {kind.__name__}, not {whole!r}.")
    need(not given, f"settings is given, so {', '.join(given)} cannot be given beside it.")
    checked: S = whole
    return checked, count


def build(kind: type[S], given: Mapping[str, Any]) -> S:
    """Return settings of a kind; parts, such as the noise, may be mappings, as YAML has them.

    Raises
    ------
    ValueError : for a setting that there is not, is missing, or is of another kind.
    """
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    for name in given:
        choice(f"A setting of {kind.__name__}", name, known)
    required = [f.name for f in known.values() if f.default is f.default_factory is MISSING]
    missing = [name for name in required if name not in given]
    need(not missing, f"{kind.__name__} needs {', '.join(missing)}.")
    return kind(**{name: _part(known[name], value) for name, value in given.items()})


def _part(field: Field[Any], value: Any) -> Any:
    """Make a field's value what the field holds: an object of its class, or a sequence of such."""
    one, many = field.default_factory, field.metadata.get(PARTS)
    part = many or (one if is_dataclass(one) else None)
    if part is None:
        return value
    if many and isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_object(field.name, part, item) for item in value)
    need(part is one, f"{field.name} must be a list, each a {part.__name__}, not {value!r}.")
    return _object(field.name, part, value)


def _object(name: str, part: Any, value: Any) -> Any:
    """Return an object of a class from itself or a mapping."""
    if isinstance(value, Mapping):
        return build(part, value)
    need(isinstance(value, part), f"{name} must hold a {part.__name__}, not {value!r}.")
    return value
