"""Complaints about settings, each one sentence that names the setting and what it may be."""

import math
from collections.abc import Collection, Iterable
from difflib import get_close_matches


def need(condition: bool, sentence: str) -> None:
    """Raise ValueError with that sentence unless the condition holds."""
    if not condition:
        raise ValueError(sentence)


def number(name: str, value: float, low: float = -math.inf, high: float = math.inf) -> None:
    """Raise ValueError unless value is a number in [low, high] (infinite only if a bound is)."""
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}; it must lie between {low:g} and {high:g}.")


def choice(name: str, value: object, known: Collection[str]) -> None:
    """Raise ValueError unless value is one of the known words; it names the nearest one."""
    if value not in known:
        near = get_close_matches(str(value), known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else f" It may be {', '.join(sorted(known))}."
        raise ValueError(f"{name} is {value!r}, which is not known.{hint}")


def choices(name: str, values: Iterable[object], known: Collection[str]) -> None:
    """Raise ValueError unless all values are known words, each of them once, and there is one."""
    values = list(values)
    for value in values:
        choice(name, value, known)
    if len(set(values)) != len(values) or not values:
        raise ValueError(f"{name} is {values}; it must hold at least one name, and each once.")
