"""A controller that is saved and read back acts as before, bit for bit, or says why it cannot."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cluster.errors import UsageError
from tests.trainers.control.making import MOVED, controller, samples
from trainers.control.controller import (
    DESCRIPTION,
    FOLDER,
    TENSORS,
    SavedController,
    load,
    load_from,
    save,
)
from trainers.control.inference import Kind

KINDS: list[tuple[int, Kind | None]] = [(0, None), (2, None), (2, "discrete"), (3, "gaussian")]


@pytest.mark.parametrize(("context", "kind"), KINDS)
def test_round_trip_is_exact(tmp_path: Path, context: int, kind: Kind | None) -> None:
    kept = controller(context, kind)
    save(tmp_path, kept)
    state = torch.get_rng_state()
    found = load(tmp_path)
    assert torch.equal(torch.get_rng_state(), state)  # reading draws no random numbers
    x, z = samples(50), torch.randn(50, context)
    assert torch.equal(found.act(x, z), kept.act(x, z))
    assert torch.equal(found.policy.log_sd, kept.policy.log_sd)
    assert found.policy.log_sd.requires_grad
    np.testing.assert_array_equal(found.codes, kept.codes)
    assert (found.inference is None) == (kind is None)
    if kind is not None:
        piece = samples(4, 9), samples(4, 9, units=MOVED), torch.ones(4, 9, dtype=torch.bool)
        for got, want in zip(found.infer(*piece), kept.infer(*piece), strict=True):
            assert torch.equal(got, want)
    plain = ("observations", "actions", "seconds", "low", "high", "pieces")
    assert [getattr(found, n) for n in plain] == [getattr(kept, n) for n in plain]


def test_actions_stop_at_the_limits() -> None:
    made = replace(controller(), low=(0.2, 1.0), high=(0.3, 3.0))
    x, z = samples(200), torch.eye(2)[torch.arange(200) % 2]
    free, held = made.policy.act(torch.cat([x, z], -1)), made.act(x, z)
    low, high = torch.tensor(made.low), torch.tensor(made.high)
    assert (free < low).any(0).all()
    assert (free > high).any(0).all()
    inside = (free >= low) & (free <= high)
    assert torch.equal(held[inside], free[inside])
    assert torch.equal(held[free < low], low.expand_as(free)[free < low])
    assert torch.equal(held[free > high], high.expand_as(free)[free > high])


def test_the_mode_is_the_nearest_code() -> None:
    made = replace(controller(), codes=np.array([[0, 0], [1, 0], [0, 2]], np.float32))
    z = np.array([[0.1, 0.9], [0.6, 0.1], [0.1, 1.1]], np.float32)
    assert made.modes(z).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"actions": ("m",)}, "3 observations and has 2 actions"),
        ({"low": (0.0,)}, "low and a high"),
        ({"low": (0.0, 7.5)}, "must be less"),
        ({"codes": np.eye(3, dtype=np.float32)}, r"not \(K, 2\)"),
        ({"inference": controller(3, "discrete").inference}, "does not fit"),
    ],
)
def test_parts_must_fit(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(controller(), **change)


# Files that cannot be used


def _description(folder: Path, **changes: Any) -> None:
    data = json.loads((folder / DESCRIPTION).read_text())
    (folder / DESCRIPTION).write_text(json.dumps({**data, **changes}))


def _tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    """Change tensors as someone would who also knows of the digest."""
    found = load_file(folder / TENSORS)
    change(found)
    save_file(found, folder / TENSORS)
    _description(folder, sha256=hashlib.sha256((folder / TENSORS).read_bytes()).hexdigest())


def _flip(folder: Path) -> None:
    data = bytearray((folder / TENSORS).read_bytes())
    data[-1] ^= 1
    (folder / TENSORS).write_bytes(data)


def _not_tensors(folder: Path) -> None:
    (folder / TENSORS).write_bytes(b"nothing")
    _description(folder, sha256=hashlib.sha256(b"nothing").hexdigest())


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda f: (f / DESCRIPTION).unlink(), "holds no controller: controller.json cannot"),
        (lambda f: (f / TENSORS).unlink(), "cannot be read (No such file"),
        (lambda f: (f / DESCRIPTION).write_text("{"), "does not describe a controller"),
        (lambda f: (f / DESCRIPTION).write_text("[1]"), "does not describe a controller"),
        (lambda f: _description(f, format="a model"), "(format: input should be 'corymb"),
        (lambda f: _description(f, version=2), "(version: input should be 1)"),
        (lambda f: _description(f, secret=2), "(secret: extra inputs"),
        (lambda f: _description(f, low=[0.0]), "Every action needs"),
        (lambda f: _description(f, hidden=[10**9, 5]), "size mismatch"),
        (lambda f: _description(f, inference=None), "inference"),
        (_flip, "damaged or belongs to another controller.json"),
        (lambda f: (f / TENSORS).write_bytes(b""), "damaged or belongs"),
        (_not_tensors, "do not fit"),
        (lambda f: _description(f, codes=[]), "(codes: tuple should have at least 1 item"),
        (lambda f: _description(f, codes=[[1.0], [1.0, 0.0]]), "do not fit"),
        (lambda f: _tensors(f, lambda t: t.pop("policy.log_sd")), "log_sd"),
        (
            lambda f: _tensors(f, lambda t: t["policy.log_sd"].fill_(torch.nan)),
            "not a finite number",
        ),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, harm: Callable[[Path], Any], said: str) -> None:
    save(tmp_path, controller())
    harm(tmp_path)
    with pytest.raises(UsageError) as caught:
        load(tmp_path)
    message = str(caught.value)
    assert said in message
    assert str(tmp_path) in message
    assert "\n" not in message


def test_a_run_directory_or_the_folder_itself(tmp_path: Path) -> None:
    save(tmp_path / "run" / FOLDER, controller())
    found = [load_from(tmp_path / "run"), load_from(tmp_path / "run" / FOLDER)]
    assert torch.equal(found[0].policy.log_sd, found[1].policy.log_sd)
    with pytest.raises(UsageError, match="holds no controller"):
        load_from(tmp_path)


def test_a_second_save_replaces_the_first(tmp_path: Path) -> None:
    save(tmp_path, controller(seed=0))
    second: SavedController = controller(0, None, seed=1)
    save(tmp_path, second)
    x = samples(5)
    assert torch.equal(load(tmp_path).act(x, torch.zeros(5, 0)), second.act(x, torch.zeros(5, 0)))
