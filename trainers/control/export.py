"""How does a controller leave the house? As ONNX files that are held against torch first.

`policy.onnx` turns observations, and z where there is one, into actions within the plant's limits.
`inference.onnx` turns pieces of trajectories into z. Both take any number of rows, pieces of any
length, and numbers in the units of the plant; names, limits and codes stand in their metadata.
"""

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cluster.errors import CorymbError, MissingDependencyError
from cluster.files import write_bytes
from trainers.control.controller import SavedController, load_from, save

POLICY, INFERENCE = "policy.onnx", "inference.onnx"

NEEDED = ("onnx", "onnxscript", "onnxruntime")

TOLERANCE = 1e-5
"""Of |onnx - torch| / max(1, |torch|)."""

SHAPES = ((1, 1), (1, 5), (7, 20), (3, 50), (64, 300))
"""Rows and samples at which both are compared."""

Answer = Callable[..., Sequence[NDArray[Any]]]


def export_run(place: Path, folder: Path) -> dict[str, float]:
    """Export the controller of a run directory; see `export`."""
    return export(load_from(place), folder)


def export(controller: SavedController, folder: Path) -> dict[str, float]:
    """Write the ONNX files of a controller beside a copy of its own; nothing if they differ.

    Returns
    -------
    dict
        Of each ONNX file the largest |onnx - torch| / max(1, |torch|) over random inputs.

    Raises
    ------
    MissingDependencyError : without the packages of the extra `export`.
    CorymbError : where a file's answers differ from torch's by more than `TOLERANCE`.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise MissingDependencyError(
            f"Exporting as ONNX needs {', '.join(missing)}, not installed here: "
            "pip install 'corymb[export]'"
        )
    files = {POLICY: _policy_file(controller)}
    differences = {POLICY: policy_difference(controller, session(files[POLICY]))}
    if controller.inference is not None:
        files[INFERENCE] = _inference_file(controller)
        differences[INFERENCE] = inference_difference(controller, session(files[INFERENCE]))
    for name, difference in differences.items():
        if not difference <= TOLERANCE:
            raise CorymbError(
                f"{name} would differ from the controller by {difference:.2g}, more than "
                f"{TOLERANCE:g}, so nothing was written; other releases of onnx or onnxruntime "
                "may do better"
            )
    for name in (POLICY, INFERENCE):
        (folder / name).unlink(missing_ok=True)  # may be there from another controller
    save(folder, controller)
    for name, data in files.items():
        write_bytes(folder / name, data)
    return differences


def session(file: bytes | Path) -> Answer:
    """Return an ONNX file as a function of named arrays that returns its outputs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    source = file if isinstance(file, bytes) else str(file)
    running = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])

    def answer(**inputs: NDArray[Any]) -> Sequence[NDArray[Any]]:
        found: Sequence[NDArray[Any]] = running.run(None, inputs)
        return found

    return answer


def policy_difference(controller: SavedController, answer: Answer) -> float:
    """Largest difference of actions over random observations and z of every shape."""
    generator = torch.Generator().manual_seed(0)
    worst = 0.0
    for rows, _ in SHAPES:
        x = _observations(controller, (rows,), generator)
        z = torch.randn((rows, controller.policy.context), generator=generator)
        with torch.no_grad():
            wanted = controller.act(x, z).numpy()
        inputs = {"observation": x.numpy()} | ({"z": z.numpy()} if z.shape[1] else {})
        worst = max(worst, _difference(answer(**inputs)[0], wanted))
    return worst


def inference_difference(controller: SavedController, answer: Answer) -> float:
    """Largest difference of q's parameters, and of z, over random pieces of every shape.

    z is held against that of the file's own parameters: two logits that nearly tie may change
    places by rounding, which is no fault.
    """
    q = controller.inference
    assert q is not None
    generator = torch.Generator().manual_seed(1)
    worst = 0.0
    for rows, samples in SHAPES:
        x = _observations(controller, (rows, samples), generator)
        u = controller.policy.unscaled(
            torch.randn((rows, samples, len(controller.actions)), generator=generator)
        )
        length = torch.randint(1, samples + 1, (rows, 1), generator=generator)
        valid = torch.arange(samples) < length
        with torch.no_grad():
            wanted, _ = controller.infer(x, u, valid)
            parameters, z = answer(x=x.numpy(), u=u.numpy(), valid=valid.numpy())
            implied = q.code(torch.from_numpy(parameters)).numpy()
        worst = max(worst, _difference(parameters, wanted.numpy()), _difference(z, implied))
    return worst


def _observations(
    controller: SavedController, shape: tuple[int, ...], generator: torch.Generator
) -> Tensor:
    """Random observations that reach three widths from the centre and beyond."""
    k = len(controller.observations)
    drawn = 2 * torch.randn((*shape, k), generator=generator)
    policy = controller.policy
    return policy.get_buffer("centre")[:k] + policy.get_buffer("width")[:k] * drawn


def _difference(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    if found.shape != wanted.shape:
        return float("inf")
    share = np.abs(found - wanted) / np.maximum(1, np.abs(wanted))
    return float(share.max())


class _Acting(nn.Module):
    """What `policy.onnx` computes."""

    def __init__(self, controller: SavedController) -> None:
        super().__init__()
        self.policy = controller.policy
        self._act = controller.act

    def forward(self, observation: Tensor, z: Tensor | None = None) -> Tensor:
        """Actions (n, a)."""
        return self._act(observation, observation[:, :0] if z is None else z)


class _Inferring(nn.Module):
    """What `inference.onnx` computes."""

    def __init__(self, controller: SavedController) -> None:
        super().__init__()
        self.policy, self.inference = controller.policy, controller.inference
        self._infer = controller.infer

    def forward(self, x: Tensor, u: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Parameters and z."""
        return self._infer(x, u, valid)


def _policy_file(controller: SavedController) -> bytes:
    k, c = len(controller.observations), controller.policy.context
    inputs = {"observation": torch.zeros(3, k)} | ({"z": torch.zeros(3, c)} if c else {})
    return _onnx(_Acting(controller), inputs, ["action"], ("n",), _metadata(controller))


def _inference_file(controller: SavedController) -> bytes:
    k, a = len(controller.observations), len(controller.actions)
    inputs = {
        "x": torch.zeros(3, 4, k),
        "u": torch.zeros(3, 4, a),
        "valid": torch.ones(3, 4, dtype=torch.bool),
    }
    metadata = _metadata(controller)
    return _onnx(_Inferring(controller), inputs, ["parameters", "z"], ("n", "T"), metadata)


def _onnx(
    module: nn.Module,
    inputs: Mapping[str, Tensor],
    outputs: Sequence[str],
    axes: Sequence[str],
    metadata: Mapping[str, str],
) -> bytes:
    """A module as an ONNX file whose first axes are free and have these names."""
    free = {axis: torch.export.Dim(name) for axis, name in enumerate(axes)}
    with _quiet():
        program = torch.onnx.export(
            module,
            tuple(inputs.values()),
            dynamo=True,
            verbose=False,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_shapes=tuple(free for _ in inputs),
        )
        assert program is not None
        program.model.metadata_props.update(metadata)
        data: bytes = program.model_proto.SerializeToString()
    return data


def _metadata(controller: SavedController) -> dict[str, str]:
    """What a reader of the file alone must know, each as JSON."""
    names = ("observations", "actions", "seconds", "low", "high")
    known = {name: getattr(controller, name) for name in names}
    known["codes"] = controller.codes.tolist()
    return {name: json.dumps(value) for name, value in known.items()}


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what the exporter says of optional packages and of its own deprecations."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
