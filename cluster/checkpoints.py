"""Checkpoints of a run: plain arrays and JSON in safetensors, each with its digest.

A file that was truncated or altered is noticed by its SHA-256 and passed over for the one before.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from cluster.files import write_bytes, write_json

if TYPE_CHECKING:
    import numpy as np

KEEP = 2
"""Checkpoints kept for each name: the newest, and one to fall back on."""


def save(
    folder: Path, name: str, step: int, arrays: Mapping[str, "np.ndarray"], state: Mapping[str, Any]
) -> Path:
    """Write `name`-`step`, record its digest, and delete what is older than the last `KEEP`."""
    import numpy as np
    from safetensors.numpy import save as serialise

    data = serialise(
        {key: np.asarray(value, order="C") for key, value in arrays.items()},
        metadata={"state": json.dumps(state), "step": str(step)},
    )
    path = folder / f"{quote(name, safe='')}-{step:08d}.safetensors"
    write_bytes(path, data)
    index = _index(folder)
    before = index.get(name, [])
    entry = {"step": step, "file": path.name, "sha256": hashlib.sha256(data).hexdigest()}
    kept = [*(e for e in before if e["step"] < step), entry][-KEEP:]
    write_json(folder / "index.json", {**index, name: kept})
    for file in {e["file"] for e in before} - {e["file"] for e in kept}:
        (folder / file).unlink(missing_ok=True)
    return path


def load(
    folder: Path, name: str, damaged: list[str]
) -> tuple[int, dict[str, "np.ndarray"], dict[str, Any]] | None:
    """Return step, arrays and state of the newest whole checkpoint called `name`, or None.

    Names of files that are missing or do not match their digest are appended to `damaged`.
    """
    from safetensors import safe_open
    from safetensors.numpy import load as parse

    for entry in reversed(_index(folder).get(name, [])):
        path = folder / entry["file"]
        data = path.read_bytes() if path.is_file() else b""
        if hashlib.sha256(data).hexdigest() != entry["sha256"]:
            damaged.append(entry["file"])
            continue
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata()
        arrays = {key: value.copy() for key, value in parse(data).items()}
        return int(metadata["step"]), arrays, json.loads(metadata["state"])
    return None


def _index(folder: Path) -> dict[str, list[dict[str, Any]]]:
    try:
        index: dict[str, list[dict[str, Any]]] = json.loads((folder / "index.json").read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return index
