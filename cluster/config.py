"""What a run is made of: strict models, and the layers that their values come from.

recipe defaults < preset < `ray_config.yaml` (metadata.corymb) < run file < CORYMB__A__B in the
environment < `--set a.b=1`. Every value remembers its layer, and every mistake is reported at once
with its place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from cluster import recipes, yamltext
from cluster.errors import UsageError
from cluster.layers import Layer, Merged, environment_layer, file_layer, merge, set_layer
from cluster.plan import Plan
from cluster.problems import ConfigError, describe, did_you_mean


class PathMark:
    """Marks a text field as a path; `load` makes it absolute."""


RunPath = Annotated[str, PathMark()]
"""A path. From a file it is relative to that file's folder, otherwise to the current one."""


class Settings(BaseModel):
    """Base of all configuration models: unknown keys are errors, values keep their type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=True)


class ClusterSettings(Settings):
    """Where a run takes place."""

    address: str | None = Field(
        None, description="Ray cluster to join; without it, RAY_ADDRESS, else an embedded Ray."
    )
    wait_for_resources: float = Field(
        0.0, ge=0, description="Seconds to wait for an autoscaling cluster to grow."
    )
    num_cpus: int | None = Field(
        None, ge=1, description="CPUs of the embedded Ray; by default those this process may use."
    )
    num_gpus: int | None = Field(
        None, ge=0, description="GPUs of the embedded Ray; by default all that Ray finds."
    )


class RunConfig(Settings):
    """What every run file can say; recipes add their own fields."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"small": {}}

    recipe: str = Field(description="Name of the recipe; `corymb list` shows all.")
    preset: str = Field("small", description="Named set of values that the file then changes.")
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (0,), min_length=1, description="One repetition a seed; figures are means over them."
    )
    output: RunPath = Field("runs", description="Folder that run directories are made in.")
    cluster: ClusterSettings = ClusterSettings()

    def plan(self) -> Plan:
        """What the run needs; recipes override it."""
        return Plan(({"CPU": 1.0},), len(self.seeds), "seeds", ("cluster.num_cpus",))


@dataclass(frozen=True)
class Loaded:
    """A checked configuration, and for each dotted path where its value came from."""

    config: RunConfig
    origins: Mapping[str, str]


def load(
    file: Path | None,
    *,
    recipe: str | None = None,
    preset: str | None = None,
    sets: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    defaults: Path | None = None,
) -> Loaded:
    """Read, merge and check a run's configuration.

    Parameters
    ----------
    file : the run file; None for a run described by presets and `--set` alone.
    recipe : used where no layer names one.
    preset : as `--preset`; the last word.
    sets : texts "a.b=1".
    environ : variables to look for CORYMB__ in; none by default.
    defaults : a `ray_config.yaml`; its absence is no error.

    Raises
    ------
    ConfigError
        Listing every problem with file, line and dotted path.
    """
    layers: list[Layer] = []
    if defaults is not None and defaults.is_file():
        layers += _launcher_layers(defaults)
    if file is not None:
        layers.append(file_layer(file))
    layers.append(environment_layer(environ or {}))
    layers.append(set_layer(sets))
    if preset is not None:
        layers.append(Layer("--preset", {"preset": preset}, {}, Path.cwd()))
    chosen = _last(layers, "recipe") or recipe
    if not isinstance(chosen, str):
        raise ConfigError([f"{_where(file)}: recipe: is required; `corymb list` shows all recipes"])
    try:
        entry = recipes.find(chosen)
    except UsageError as error:
        raise ConfigError([f"{_place(layers, 'recipe')}: recipe: {error}"]) from None
    usable = [_for_recipe(layer, chosen) for layer in layers]
    return _validate(entry.config, chosen, usable)


def schema(recipe: str) -> dict[str, Any]:
    """JSON schema of a recipe's run files."""
    return recipes.find(recipe).config.model_json_schema()


def dump(config: RunConfig) -> str:
    """YAML with every value spelled out; `load` reads it back to an equal configuration."""
    return yamltext.dump(config.model_dump(mode="json"))


def _validate(model: type[RunConfig], recipe: str, layers: list[Layer]) -> Loaded:
    name = _last(layers, "preset") or model.model_fields["preset"].default
    if not isinstance(name, str) or name not in model.presets:
        raise ConfigError([_unknown_preset(str(name), model, layers)])
    preset = Layer(f"preset {name}", dict(model.presets[name]), {}, Path.cwd())
    merged = merge([preset, *layers])
    merged.data.setdefault("recipe", recipe)
    merged.data.setdefault("preset", name)
    try:
        config = model.model_validate_json(_json(merged.data))
    except ValidationError as error:
        raise ConfigError(describe(error, model, merged)) from None
    config = _absolute(config, merged, ())
    return Loaded(config, _origins(config, merged))


def _json(data: Any) -> str:
    """JSON text; strict checking then takes lists for tuples, as a file can only write lists."""
    import json

    return json.dumps(data)


def _launcher_layers(path: Path) -> list[Layer]:
    """`metadata.corymb` of a cluster-launcher file."""
    whole = file_layer(path)
    inner = whole.data.get("metadata") or {}
    ours = inner.get("corymb") if isinstance(inner, dict) else None
    if ours is None:
        return []
    if not isinstance(ours, dict):
        place = whole.at(("metadata", "corymb"))
        raise ConfigError([f"{place}: metadata.corymb: expected a block of keys"])
    return [whole.below(("metadata", "corymb"))]


def _for_recipe(layer: Layer, recipe: str) -> Layer:
    """Lift `recipes.NAME` of a shared layer to the top; drop other recipes' defaults."""
    if "recipes" not in layer.data:
        return layer
    shared = Layer(
        layer.name, {k: v for k, v in layer.data.items() if k != "recipes"}, layer.lines, layer.base
    )
    block = {} if layer.data["recipes"] is None else layer.data["recipes"]
    if not isinstance(block, dict):
        raise ConfigError([f"{layer.at(('recipes',))}: recipes: expected a block of keys"])
    for name in block:
        try:
            recipes.find(name)
        except UsageError as error:
            raise ConfigError([f"{layer.at(('recipes', name))}: recipes.{name}: {error}"]) from None
    if not isinstance(block.get(recipe), dict):
        return shared
    return shared.over(layer.below(("recipes", recipe)))


def _last(layers: Sequence[Layer], key: str) -> Any:
    found = [layer.data[key] for layer in layers if layer.data.get(key) is not None]
    return found[-1] if found else None


def _unknown_preset(name: str, model: type[RunConfig], layers: Sequence[Layer]) -> str:
    hint = did_you_mean(name, model.presets) or f"; presets: {', '.join(model.presets)}"
    return f"{_place(layers, 'preset')}: preset: there is no preset '{name}'{hint}"


def _place(layers: Sequence[Layer], key: str) -> str:
    """Place of the last word on a top-level key."""
    places = [layer.at((key,)) for layer in layers if layer.data.get(key) is not None]
    return places[-1] if places else "the command line"


def _absolute(config: Any, merged: Merged, path: tuple[str, ...]) -> Any:
    """Return the configuration with every marked path absolute."""
    changes: dict[str, Any] = {}
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, Settings):
            changes[name] = _absolute(value, merged, (*path, name))
        elif isinstance(value, str) and _is_path(field):
            base = merged.base((*path, name))
            changes[name] = str((base / Path(value).expanduser()).resolve())
    return config.model_copy(update=changes)


def _is_path(field: FieldInfo) -> bool:
    """Whether a field is a RunPath, or a RunPath or None."""
    inner = [m for part in get_args(field.annotation) for m in getattr(part, "__metadata__", ())]
    return any(isinstance(mark, PathMark) for mark in (*field.metadata, *inner))


def _origins(config: RunConfig, merged: Merged) -> dict[str, str]:
    """Where each leaf of the configuration came from."""
    origins: dict[str, str] = {}

    def walk(value: Any, path: tuple[str, ...]) -> None:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                walk(inner, (*path, key))
        else:
            origins[".".join(path)] = merged.origin(path)

    walk(config.model_dump(mode="json"), ())
    return origins


def _where(file: Path | None) -> str:
    return "the command line" if file is None else file.name


__all__ = [
    "ClusterSettings", "ConfigError", "Loaded", "RunConfig", "RunPath", "Settings", "UsageError",
    "dump", "load", "schema",
]  # fmt: skip
