"""YAML as people mean it: 1e-3 is a number, on is a word, 012 is twelve, and lines are remembered.

Only plain data is read: no tags, no anchors, no duplicate keys.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from cluster.errors import UsageError

Key = tuple[str | int, ...]

_INTEGER = re.compile(r"[-+]?[0-9][0-9_]*")
_HEX = re.compile(r"[-+]?0x[0-9a-fA-F][0-9a-fA-F_]*")
_FLOAT = re.compile(r"[-+]?([0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?")
_SPECIAL = {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}
_WORDS = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip


@dataclass(frozen=True)
class Document:
    """A parsed text: its data, and the line (from 1) of every key and list item."""

    data: Any
    lines: Mapping[Key, int]


class YamlError(UsageError):
    """The text is not the YAML that is read here; the message starts with its place."""


def parse(text: str, name: str) -> Document:
    """Read a YAML text.

    Parameters
    ----------
    text : the YAML.
    name : what to call it in errors, usually the file's name.

    Raises
    ------
    YamlError
        With name:line, for syntax errors, duplicate keys, tags and anchors.
    """
    try:
        root = yaml.compose(text, Loader=_Composer)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        hint = "; indent with spaces, not tabs" if "\\t" in str(error.problem) else ""
        raise YamlError(f"{name}:{line}: not valid YAML: {error.problem}{hint}") from None
    except yaml.YAMLError as error:
        raise YamlError(f"{name}: not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise YamlError(f"{name}: not valid YAML: nested too deeply") from None
    lines: dict[Key, int] = {}
    return Document(None if root is None else _build(root, (), lines, name), lines)


def parse_value(text: str, name: str) -> Any:
    """Read one value as it would stand behind a key: a scalar, [a list] or {a: mapping}."""
    return parse(text, name).data


def scalar(text: str) -> Any:
    """Read a plain (unquoted) scalar: null, true or false, a number, or else the text itself."""
    if text in _WORDS:
        return _WORDS[text]
    if text.lower() in _SPECIAL:
        return _SPECIAL[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text.replace("_", ""))
    if _HEX.fullmatch(text):
        return int(text.replace("_", ""), 16)
    if _FLOAT.fullmatch(text):
        value = float(text.replace("_", ""))
        whole = "." not in text and value.is_integer()  # 1e5 counts something
        return int(value) if whole else value
    return text


def dump(data: Any) -> str:
    """Write plain data as YAML that `parse` reads back unchanged."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Composer(yaml.SafeLoader):
    """Composes nodes; refuses aliases, which can make a small file huge, and tags."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        problem = None
        if event.anchor is not None:
            problem = "anchors and aliases are not read here; write the value out"
        elif event.tag is not None:
            problem = f"tags such as {event.tag} are not read here"
        if problem is not None:
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
        return super().compose_node(parent, index)


class _Dumper(yaml.SafeDumper):
    """Quotes strings that `scalar` would read as something else; writes no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = None if scalar(data) == data else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _Dumper.represent_str)


def _build(node: yaml.Node, path: Key, lines: dict[Key, int], name: str) -> Any:
    line = node.start_mark.line + 1
    lines.setdefault(path, line)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, lines, name)
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, (*path, i), lines, name) for i, item in enumerate(node.value)]
    assert isinstance(node, yaml.ScalarNode)
    return scalar(node.value) if node.style is None else node.value


def _mapping(node: yaml.MappingNode, path: Key, lines: dict[Key, int], name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise YamlError(f"{name}:{line}: a key must be a word, not a list or a mapping")
        key = str(key_node.value)
        if key in found:
            first = lines[(*path, key)]
            raise YamlError(f"{name}:{line}: the key '{key}' is already set on line {first}")
        lines[(*path, key)] = line
        found[key] = _build(value_node, (*path, key), lines, name)
    return found
