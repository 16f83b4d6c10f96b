"""Demonstrations that do not fit their plant or their known modes are refused in words."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.errors import UsageError
from trainers.control.demonstrations import parquet
from trainers.control.demonstrations.truth import write_truth
from trainers.control.imitate.config import Config
from trainers.control.imitate.data import demonstrations
from trainers.control.plants import PlantSettings
from trainers.control.record import controller, record
from trainers.control.trajectories import Trajectories

PLANT = PlantSettings()
SAID = PLANT.model_dump(mode="json")


@pytest.fixture(scope="module")
def data() -> Trajectories:
    return record(PLANT, controller(PLANT, None), 12, 5)[0]


def opened(**values: Any) -> int:
    """How many demonstrations the recipe takes."""
    config = Config(recipe="imitate")
    changed = config.data.model_copy(update=values)
    return len(demonstrations(config.model_copy(update={"data": changed})).data)


def written(folder: Path, data: Trajectories, plant: dict[str, Any] = SAID) -> str:
    parquet.write(folder / "file.parquet", data, plant=plant)
    return str(folder / "file.parquet")


def test_what_was_recorded_fits(tmp_path: Path, data: Trajectories) -> None:
    assert opened(path=written(tmp_path, data)) == 12


def test_an_unknown_plant(tmp_path: Path, data: Trajectories) -> None:
    with pytest.raises(UsageError, match=r"does not know \(kind: Input should be 'cstr'"):
        opened(path=written(tmp_path, data, {"kind": "tank"}))


def test_actions_beyond_the_plants(tmp_path: Path, data: Trajectories) -> None:
    u = data.u.copy()
    u[3, 20:22] = 7.0
    said = r"'m' is outside \[0, 1\] in 2 sample\(s\); the first is 7, sample 21 of '00003'"
    with pytest.raises(UsageError, match=said):
        opened(path=written(tmp_path, replace(data, u=u)))


def test_observations_in_another_unit(tmp_path: Path, data: Trajectories) -> None:
    x = data.x.copy()
    x[:, :, 1] += 273.15
    said = "the median of 'T' is 36.*, the plant's is about 88; is it in another unit"
    with pytest.raises(UsageError, match=said):
        opened(path=written(tmp_path, replace(data, x=x)))


def test_columns_and_sampling_of_another_plant(tmp_path: Path, data: Trajectories) -> None:
    other = replace(data, observations=("CA", "T", "TC", "flow"), seconds=60.0)
    with pytest.raises(UsageError) as caught:
        opened(path=written(tmp_path, other))
    assert "its observations are CA, T, TC, flow, the plant's CA, T, TC, b" in str(caught.value)
    assert "samples are 60 apart, the plant's 10" in str(caught.value)


@pytest.mark.parametrize(
    ("mode", "plant", "said"),
    [
        ([0, 2] * 6, SAID, "names mode 2, but modes are numbered from 0 to 1"),
        ([-1, 0] * 6, SAID, "names mode -1"),
        ([0] * 12, SAID, "Of mode 1 there is no trajectory to learn from, 12 trajectories"),
        ([0, 2] * 6, None, "Of mode 1 there is no trajectory to learn from"),
    ],
)
def test_known_modes_that_cannot_be_matched(
    tmp_path: Path, data: Trajectories, mode: list[int], plant: dict[str, Any], said: str
) -> None:
    write_truth(tmp_path / "truth.parquet", data.ids.tolist(), np.array(mode))
    with pytest.raises(UsageError, match=said):
        opened(path=written(tmp_path, data, plant), truth=str(tmp_path / "truth.parquet"))


def test_a_mode_that_is_held_out_whole() -> None:
    with pytest.raises(UsageError, match="no trajectory to learn from, 2 trajectories in all"):
        opened(trajectories=2)


def test_no_truth_where_it_is_said_to_be(tmp_path: Path, data: Trajectories) -> None:
    with pytest.raises(UsageError, match="there is no such file; name one of modes as truth"):
        opened(path=written(tmp_path, data), truth=str(tmp_path / "none.parquet"))
