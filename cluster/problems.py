"""What is wrong with a configuration, in plain words, each with its place."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from cluster.errors import UsageError

if TYPE_CHECKING:
    from cluster.layers import Merged


class ConfigError(UsageError):
    """All problems of a configuration; one line each."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))


def describe(error: ValidationError, model: type[BaseModel], merged: "Merged") -> list[str]:
    """One line a problem: place, dotted path, what is wrong, and what was probably meant."""
    lines = []
    for detail in error.errors(include_url=False):
        path = _without_tags(detail["loc"], merged.data)
        dotted = ".".join(str(p) for p in path)
        colon = f"{dotted}: " if dotted else ""
        lines.append(f"{merged.place(path)}: {colon}{_sentence(detail, model)}")
    return lines


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return '; did you mean "x"?', or nothing where no known word is near, whatever its case."""
    by_lower = {name.lower(): name for name in known}
    near = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean '{by_lower[near[0]]}'?" if near else ""


_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a text",
    "tuple_type": "a list",
    "list_type": "a list",
    "model_type": "a block of keys",
    "dict_type": "a block of keys",
    "model_attributes_type": "a block of keys",
}

_BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


def _sentence(detail: ErrorDetails, model: type[BaseModel]) -> str:
    kind, given, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, got {_show(given)}"
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        return f"must be {words} {context[key]:g}, got {_show(given)}"
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        return _unknown_key(detail["loc"], model)
    if kind == "literal_error":
        return _choice(given, context["expected"].replace(" or ", ", "))
    if kind == "union_tag_invalid":
        key = context["discriminator"].strip("'")
        return f"{key} {_choice(given[key], context['expected_tags'])}"
    if kind == "union_tag_not_found":
        return f"needs the key {context['discriminator']}, which says what it is"
    if kind == "value_error":
        return str(context["error"])
    if kind in ("too_short", "too_long"):
        bound = context.get("min_length", context.get("max_length"))
        return f"needs {'at least' if kind == 'too_short' else 'at most'} {bound} entries"
    return detail["msg"][0].lower() + detail["msg"][1:]


def _choice(given: Any, expected: str) -> str:
    known = [word.strip("'") for word in expected.split(", ")]
    near = did_you_mean(str(given), known)
    return f"must be one of {', '.join(known)}, got {_show(given)}{near}"


def _unknown_key(path: tuple[int | str, ...], model: type[BaseModel]) -> str:
    """Name the nearest key of the model that the unknown one stands in."""
    inner = [model]
    for part in path[:-1]:
        fields = [m.model_fields[str(part)] for m in inner if part in m.model_fields]
        if fields:  # otherwise a name in a dict of models, or a list's index
            inner = [m for field in fields for m in _models_of(field.annotation)]
    known = dict.fromkeys(name for m in inner for name in m.model_fields)
    near = did_you_mean(str(path[-1]), known)
    return "unknown key" + (near or "; known keys: " + ", ".join(known))


def _models_of(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for part in get_args(annotation) for m in _models_of(part)]


def _without_tags(location: tuple[int | str, ...], data: Any) -> tuple[int | str, ...]:
    """The path as a file has it: pydantic adds which of several models it took."""
    path: list[int | str] = []
    for i, part in enumerate(location):
        last = i == len(location) - 1
        if isinstance(data, dict) and part not in data and not last:
            continue
        path.append(part)
        if isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int):
            data = data[part]
    return tuple(path)


def _show(value: Any) -> str:
    if isinstance(value, str):
        return f"'{value}'"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return text if len(text) < 60 else text[:57] + "..."
