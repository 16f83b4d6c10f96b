"""Layers of configuration values, merged so that each value still knows where it came from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster import yamltext
from cluster.errors import UsageError
from cluster.problems import ConfigError

PREFIX = "CORYMB__"

DEFAULT_ORIGIN = "recipe default"


@dataclass(frozen=True)
class Layer:
    """Values from one place.

    Attributes
    ----------
    name : what to call it: a file's name, "environment", "--set", "preset small".
    data : nested mappings.
    lines : line of each path, or the full description of its place where there are no lines.
    base : folder that relative paths in it start from.
    """

    name: str
    data: dict[str, Any]
    lines: Mapping[yamltext.Key, int | str]
    base: Path

    def at(self, path: yamltext.Key) -> str:
        """Place of a path, or of its nearest parent or first child that has one: "run.yaml:3"."""
        for length in range(len(path), -1, -1):
            place = self.lines.get(path[:length])
            if isinstance(place, str):
                return place
            if place is not None:
                return f"{self.name}:{place}"
        children = (p for key, p in self.lines.items() if key[: len(path)] == path)
        return str(next(children, self.name))

    def below(self, path: yamltext.Key) -> "Layer":
        """The layer made of what stands under `path`."""
        data: Any = self.data
        for key in path:
            data = data[key]
        lines = {k[len(path) :]: v for k, v in self.lines.items() if k[: len(path)] == path}
        return Layer(self.name, data, lines, self.base)

    def over(self, upper: "Layer") -> "Layer":
        """This layer with `upper` on top, still under one name."""
        data = _deep(self.data, upper.data)
        return Layer(self.name, data, {**self.lines, **upper.lines}, self.base)


@dataclass
class Merged:
    """All layers as one tree, and the layer of each leaf."""

    data: dict[str, Any]
    layers: Sequence[Layer] = field(default_factory=tuple)

    def source(self, path: yamltext.Key) -> Layer | None:
        """The top-most layer that holds something at `path`."""
        for layer in reversed(self.layers):
            if _holds(layer.data, path):
                return layer
        return None

    def origin(self, path: yamltext.Key) -> str:
        """Where the value at `path` came from."""
        layer = self.source(path)
        return DEFAULT_ORIGIN if layer is None else layer.at(path)

    def place(self, path: yamltext.Key) -> str:
        """Where a problem at `path` is to be mended: the value's place, or its parent's."""
        for length in range(len(path), 0, -1):
            layer = self.source(path[:length])
            if layer is not None:
                return layer.at(path[:length])
        files = [layer.name for layer in self.layers if () in layer.lines]
        return files[-1] if files else "the command line"

    def base(self, path: yamltext.Key) -> Path:
        """Folder that a relative path at `path` starts from."""
        layer = self.source(path)
        return Path.cwd() if layer is None else layer.base


def merge(layers: Sequence[Layer]) -> Merged:
    """Merge layers, later ones on top; mappings merge, everything else is replaced whole."""
    data: dict[str, Any] = {}
    for layer in layers:
        data = _deep(data, layer.data)
    return Merged(data, layers)


def file_layer(path: Path) -> Layer:
    """Read a YAML file as a layer; raises ConfigError if it cannot be one."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"There is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    document = yamltext.parse(text, path.name)
    if document.data is None:
        raise ConfigError(
            [f"{path.name}:1: the file is empty; `corymb init DIR` writes an example"]
        )
    if not isinstance(document.data, dict):
        raise ConfigError([f"{path.name}:1: expected `key: value` lines at the top level"])
    return Layer(path.name, document.data, document.lines, path.resolve().parent)


def environment_layer(environ: Mapping[str, str]) -> Layer:
    """Variables CORYMB__A__B=value as {a: {b: value}}."""
    pairs = [
        (f"environment {name}", tuple(name[len(PREFIX) :].lower().split("__")), text)
        for name, text in sorted(environ.items())
        if name.startswith(PREFIX)
    ]
    return _assigned("environment", pairs)


def set_layer(arguments: Sequence[str]) -> Layer:
    """Arguments a.b=value as {a: {b: value}}; raises ConfigError for one without "="."""
    pairs, problems = [], []
    for argument in arguments:
        path, equals, text = argument.partition("=")
        if equals and all(path.split(".")):
            pairs.append((f"--set {path}", tuple(path.split(".")), text))
        else:
            problems.append(f"--set {argument}: expected a.b=value")
    if problems:
        raise ConfigError(problems)
    return _assigned("--set", pairs)


def _holds(data: Any, path: yamltext.Key) -> bool:
    for key in path:
        if isinstance(data, list):
            if not isinstance(key, int) or key >= len(data):
                return False
        elif not isinstance(data, dict) or key not in data:
            return False
        data = data[key]
    return True


def _assigned(name: str, pairs: Sequence[tuple[str, tuple[str, ...], str]]) -> Layer:
    data: dict[str, Any] = {}
    lines: dict[yamltext.Key, int | str] = {}
    for place, path, text in pairs:
        value: Any = yamltext.parse_value(text, place)
        for key in reversed(path):
            value = {key: value}
        data = _deep(data, value)
        lines[path] = place
    return Layer(name, data, lines, Path.cwd())


def _deep(lower: dict[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(lower)
    for key, value in upper.items():
        below = merged.get(key)
        merged[key] = (
            _deep(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
        )
    return merged
