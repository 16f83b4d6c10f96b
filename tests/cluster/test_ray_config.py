"""ray_config.yaml is valid for Ray's launcher, and its defaults for us."""

import copy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cluster import config

PATH = Path(__file__).parents[2] / "ray_config.yaml"


@pytest.fixture
def launcher() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(PATH.read_text())
    return loaded


def validate(launcher: dict[str, Any]) -> dict[str, Any]:
    """As `ray up` does before it touches any machine."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared: dict[str, Any] = prepare_config(copy.deepcopy(launcher))
    validate_config(prepared)
    return prepared


def test_the_launcher_accepts_the_file(launcher: dict[str, Any]) -> None:
    prepared = validate(launcher)
    assert prepared["provider"]["head_ip"] == "127.0.0.1"
    assert prepared["metadata"] == launcher["metadata"]


def test_the_launcher_accepts_it_with_workers(launcher: dict[str, Any]) -> None:
    launcher["provider"]["worker_ips"] = ["10.0.0.2", "10.0.0.3"]
    launcher["min_workers"] = launcher["max_workers"] = 2
    assert validate(launcher)["max_workers"] == 2


def test_our_settings_have_no_room_but_metadata(launcher: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError, match="corymb"):
        validate(launcher | {"corymb": {}})


def test_every_ray_asks_for_a_token_and_the_dashboard_stays_on_loopback(
    launcher: dict[str, Any],
) -> None:
    commands = launcher["head_start_ray_commands"] + launcher["worker_start_ray_commands"]
    starts = [command for command in commands if "ray start" in command]
    assert len(starts) == 2
    assert all(command.startswith("RAY_AUTH_MODE=token ") for command in starts)
    assert "--dashboard-host=127.0.0.1" in starts[0]


def test_the_defaults_are_valid_for_us_and_relative_to_the_file() -> None:
    loaded = config.load(None, recipe="fedgmm", environ={}, defaults=PATH)
    assert loaded.config.output == str(PATH.parent / "runs")
    assert loaded.origins["output"].startswith("ray_config.yaml:")
    assert loaded.origins["cluster.wait_for_resources"].startswith("ray_config.yaml:")
