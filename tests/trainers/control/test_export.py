"""ONNX files answer as torch does, for any number of rows and samples, or are not written."""

import importlib.util
import json
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from cluster.errors import CorymbError, MissingDependencyError
from tests.trainers.control.making import MOVED, controller, samples
from trainers.control import export as exporting
from trainers.control.controller import DESCRIPTION, FOLDER, TENSORS, load, save
from trainers.control.export import (
    INFERENCE,
    POLICY,
    export,
    export_run,
    inference_difference,
    policy_difference,
    session,
)
from trainers.control.inference import Kind

KINDS: list[tuple[int, Kind | None]] = [
    (0, None), (2, None), (1, "discrete"), (2, "discrete"), (3, "gaussian"),
]  # fmt: skip


@pytest.mark.parametrize(("context", "kind"), KINDS)
def test_parity(tmp_path: Path, context: int, kind: Kind | None) -> None:
    made = controller(context, kind)
    save(tmp_path / FOLDER, made)
    differences = export_run(tmp_path, tmp_path / "out")
    files = {POLICY} | ({INFERENCE} if kind else set())
    assert set(differences) == files
    assert {p.name for p in (tmp_path / "out").iterdir()} == files | {TENSORS, DESCRIPTION}
    assert max(differences.values()) < 1e-5

    act = session(tmp_path / "out" / POLICY)
    x, z = samples(11, seed=5), torch.randn(11, context)
    inputs = {"observation": x.numpy()} | ({"z": z.numpy()} if context else {})
    found = act(**inputs)[0]
    with torch.no_grad():
        again = load(tmp_path / "out").act(x, z).numpy()
    np.testing.assert_allclose(found, again, atol=1e-5)
    assert found.shape == (11, 2)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a controller with two modes."""
    folder = tmp_path_factory.mktemp("exported")
    export(controller(), folder)
    return folder


@pytest.mark.parametrize("samples_seen", [1, 2, 13, 150])
def test_inference_reads_pieces_of_any_length(exported: Path, samples_seen: int) -> None:
    """Also where samples that are not valid lie between those that are."""
    made, infer = controller(), session(exported / INFERENCE)
    x, u = samples(6, samples_seen), samples(6, samples_seen, units=MOVED, seed=1)
    valid = torch.rand(6, samples_seen) < 0.6
    valid[:, 0] = True
    parameters, z = infer(x=x.numpy(), u=u.numpy(), valid=valid.numpy())
    with torch.no_grad():
        wanted, code = made.infer(x, u, valid)
    np.testing.assert_allclose(parameters, wanted.numpy(), atol=1e-5)
    np.testing.assert_array_equal(z, code.numpy())


def test_actions_are_clipped_in_the_file(tmp_path: Path) -> None:
    made = replace(controller(), low=(0.2, 1.0), high=(0.3, 3.0))
    export(made, tmp_path)
    x, z = samples(200), torch.eye(2)[torch.arange(200) % 2]
    (found,) = session(tmp_path / POLICY)(observation=x.numpy(), z=z.numpy())
    np.testing.assert_array_equal(found.min(0), np.array(made.low, np.float32))
    np.testing.assert_array_equal(found.max(0), np.array(made.high, np.float32))


def test_a_file_alone_says_what_its_numbers_are(exported: Path) -> None:
    model = onnx.load(exported / POLICY)
    onnx.checker.check_model(model)
    said = {p.key: json.loads(p.value) for p in model.metadata_props}
    assert said["observations"] == ["CA", "T", "TC"]
    assert (said["low"], said["high"]) == ([0.0, -1.0], [0.5, 7.5])
    assert said["codes"] == [[1.0, 0.0], [0.0, 1.0]]


def test_another_controller_is_noticed(exported: Path) -> None:
    """The comparison itself can fail: a weight that moved a little shows."""
    made = controller()
    act, infer = session(exported / POLICY), session(exported / INFERENCE)
    assert policy_difference(made, act) < 1e-5
    assert inference_difference(made, infer) < 1e-5
    assert made.inference is not None
    with torch.no_grad():
        for weights in (made.policy.get_parameter("mean.0.weight"), made.inference.head.weight):
            weights.add_(1e-3)
    assert policy_difference(made, act) > 1e-5
    assert inference_difference(made, infer) > 1e-5


def test_nothing_is_written_where_the_files_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "inference_difference", lambda *_: float("nan"))
    with pytest.raises(CorymbError, match=r"inference.onnx would differ .* nothing was written"):
        export(controller(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_old_inference_file_does_not_stay(tmp_path: Path) -> None:
    (tmp_path / INFERENCE).touch()
    export(controller(0, None), tmp_path)
    assert not (tmp_path / INFERENCE).exists()


def test_exporting_is_silent_and_changes_no_random_state(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    state = torch.get_rng_state()
    export(controller(), tmp_path)
    assert torch.equal(torch.get_rng_state(), state)
    assert capfd.readouterr() == ("", "")
    assert list(recwarn) == []


def test_without_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def lacking(name: str) -> ModuleSpec | None:
        return None if name == "onnxscript" else find(name)

    monkeypatch.setattr(exporting, "find_spec", lacking)
    with pytest.raises(MissingDependencyError, match=r"needs onnxscript,.*'corymb\[export\]'"):
        export(controller(), tmp_path)
