"""The file in the repository's root: Ray takes it as it is, and corymb reads its defaults."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import ValidationError

from cluster import config

PATH = Path(__file__).resolve().parents[2] / "ray_config.yaml"


def launcher_file() -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(PATH.read_text())
    return data


def accept(data: dict[str, Any]) -> dict[str, Any]:
    """Ray's own checks, as `ray up` makes them before it touches a machine."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared: dict[str, Any] = prepare_config(data)
    validate_config(prepared)
    return prepared


def test_ray_accepts_the_file() -> None:
    prepared = accept(launcher_file())
    assert prepared["metadata"]["corymb"]["output"] == "runs"
    starts = prepared["head_start_ray_commands"][-1], prepared["worker_start_ray_commands"][-1]
    assert all("RAY_AUTH_MODE=token" in command and "\n" not in command for command in starts)


def test_ray_refuses_our_keys_anywhere_else() -> None:
    data = launcher_file()
    data["corymb"] = data.pop("metadata")["corymb"]
    with pytest.raises(ValidationError, match="corymb"):
        accept(data)


def test_defaults_are_a_layer(tmp_path: Path) -> None:
    loaded = config.load(None, recipe="fedgmm", defaults=PATH)
    line = (
        PATH.read_text()
        .splitlines()
        .index("    output: runs  # folder of the run directories; relative to this file")
    )
    assert loaded.origins["output"] == f"ray_config.yaml:{line + 1}"
    assert loaded.config.output == str(PATH.parent / "runs")

    file = tmp_path / "run.yaml"
    file.write_text("recipe: fedgmm\noutput: elsewhere\n")
    assert config.load(file, defaults=PATH).config.output == str(tmp_path / "elsewhere")


@pytest.mark.parametrize("preset", ["small", "paper"])
def test_shipped_defaults_leave_presets_alone(preset: str) -> None:
    with_file = config.load(None, recipe="fedgmm", preset=preset, defaults=PATH)
    without = config.load(None, recipe="fedgmm", preset=preset)
    different = {"output"}
    assert with_file.config.model_dump(exclude=different) == without.config.model_dump(
        exclude=different
    )


def test_commented_examples_are_valid(tmp_path: Path) -> None:
    text = PATH.read_text().replace("    recipes: {}\n", "")
    start = text.index("    # recipes:")
    example = text[start:].replace("    # ", "    ").replace("    #", "    ")
    file = tmp_path / "ray_config.yaml"
    file.write_text(text[:start] + example)
    loaded = config.load(None, recipe="fedgmm", defaults=file)
    assert loaded.config.model_dump()["partition"]["clients"] == 5
    assert loaded.origins["partition.clients"].startswith("ray_config.yaml:")
