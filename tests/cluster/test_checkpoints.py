"""Checkpoints: exact, few, and never believed when they were damaged."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import SafetensorError

from cluster import checkpoints
from cluster.evidence import Result
from cluster.run import Run


def save(folder: Path, step: int, name: str = "last") -> Path:
    return checkpoints.save(folder, name, step, {"a": np.full(100, step)}, {"step": step})


def load(folder: Path, name: str = "last") -> tuple[int | None, list[str]]:
    damaged: list[str] = []
    found = checkpoints.load(folder, name, damaged)
    if found is None:
        return None, damaged
    step, arrays, state = found
    assert arrays["a"].tolist() == [step] * 100
    assert state == {"step": step}
    return step, damaged


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.arange(6.0).reshape(2, 3).T,
        np.arange(10)[::2],
        np.asfortranarray(np.arange(12, dtype=np.int32).reshape(3, 4)),
        np.array(3.5),
        np.zeros((0, 4), dtype=np.float32),
        np.array([True, False]),
        np.array([2**64 - 1], dtype=np.uint64),
        np.array([np.nan, np.inf, -0.0, 5e-324]),
        np.arange(3, dtype=np.float16),
    ],
)
def test_arrays_come_back_bit_for_bit(tmp_path: Path, array: "np.ndarray[Any, Any]") -> None:
    checkpoints.save(tmp_path, "last", 1, {"a": array}, {})
    found = checkpoints.load(tmp_path, "last", [])
    assert found is not None
    back = found[1]["a"]
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()
    back += back.dtype.type(0)  # and can be written to


def test_state_of_a_generator_comes_back(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    generator.normal(size=7)
    state = {"rng": generator.bit_generator.state, "nested": {"list": [1, "é", None, 0.1]}}
    checkpoints.save(tmp_path, "last", 1, {}, state)
    found = checkpoints.load(tmp_path, "last", [])
    assert found is not None
    assert found[2] == state
    other = np.random.default_rng(0)
    other.bit_generator.state = found[2]["rng"]
    assert other.normal() == generator.normal()


def test_nothing_saved(tmp_path: Path) -> None:
    assert load(tmp_path) == (None, [])
    assert load(tmp_path / "absent") == (None, [])
    save(tmp_path, 1)
    assert load(tmp_path, "other") == (None, [])


def test_newest_two_of_each_name_are_kept(tmp_path: Path) -> None:
    for step in range(1, 6):
        save(tmp_path, step)
    save(tmp_path, 1, "best")
    assert names(tmp_path) == [
        "best-00000001.safetensors", "index.json",
        "last-00000004.safetensors", "last-00000005.safetensors",
    ]  # fmt: skip
    assert load(tmp_path) == (5, [])
    assert load(tmp_path, "best") == (1, [])


def test_a_step_saved_again_replaces_what_came_after(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        save(tmp_path, step)
    save(tmp_path, 3)
    assert load(tmp_path) == (3, [])
    assert names(tmp_path) == ["index.json", "last-00000003.safetensors"]
    save(tmp_path, 4)
    assert load(tmp_path) == (4, [])


def test_names_that_look_alike_do_not_meet(tmp_path: Path) -> None:
    for number, name in enumerate(("a/b", "a_b", "a b", "../a", "a%2Fb", "é"), start=1):
        save(tmp_path, number, name)
    for number, name in enumerate(("a/b", "a_b", "a b", "../a", "a%2Fb", "é"), start=1):
        assert load(tmp_path, name) == (number, [])
    assert len(names(tmp_path)) == 7  # all of them here, and the index


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


def flip_header(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)


def swap(path: Path) -> None:
    """Put a whole checkpoint of another step in its place."""
    path.write_bytes(path.with_name("last-00000001.safetensors").read_bytes())


@pytest.mark.parametrize("damage", [truncate, empty, flip, flip_header, swap, Path.unlink])
def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, damage: Any) -> None:
    save(tmp_path, 1)
    damage(save(tmp_path, 2))
    assert load(tmp_path) == (1, ["last-00000002.safetensors"])

    save(tmp_path, 2)  # what a resumed run does next
    assert load(tmp_path) == (2, [])


def test_all_damaged(tmp_path: Path) -> None:
    for step in (1, 2):
        flip(save(tmp_path, step))
    newest_first = ["last-00000002.safetensors", "last-00000001.safetensors"]
    assert load(tmp_path) == (None, newest_first)


def test_a_save_that_was_cut_short_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1)
    monkeypatch.setattr(checkpoints, "write_json", lambda *_: (_ for _ in ()).throw(OSError))
    with pytest.raises(OSError):
        save(tmp_path, 2)
    assert load(tmp_path) == (1, [])


@pytest.mark.parametrize("text", [b"{", b"", b"\xff\xfe"])
def test_a_damaged_index_means_no_checkpoints(tmp_path: Path, text: bytes) -> None:
    save(tmp_path, 1)
    (tmp_path / "index.json").write_bytes(text)
    assert load(tmp_path) == (None, [])
    save(tmp_path, 2)
    assert load(tmp_path) == (2, [])


def test_nothing_is_pickled(tmp_path: Path) -> None:
    with pytest.raises(SafetensorError, match="dtype"):
        checkpoints.save(tmp_path, "last", 1, {"a": np.array([object()])}, {})
    with pytest.raises(TypeError):
        checkpoints.save(tmp_path, "last", 1, {}, {"a": object()})
    assert list(tmp_path.iterdir()) == []


def test_a_run_says_what_it_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Run.open(recipe="toy", config_yaml="", origins={}, output=tmp_path) as run:
        run.save(1, {"a": np.ones(3)}, {}, name="best")
        truncate(run.save(2, {"a": np.ones(3)}, {}, name="best"))
        found = run.load("best")
        run.close(Result({}, {}, [0]))
    assert found is not None
    assert found[0] == 1
    said = "checkpoint best-00000002.safetensors is damaged or missing"
    assert said in capsys.readouterr().err
    assert said in (run.path / "log.txt").read_text()
    assert "best" in json.loads((run.path / "checkpoints/index.json").read_text())
