"""A plant's log as tests write it to files, and how they read it back."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.errors import UsageError
from trainers.control.demonstrations.account import Account
from trainers.control.demonstrations.open import open_demonstrations
from trainers.control.demonstrations.settings import DemonstrationSettings
from trainers.control.trajectories import Trajectories

ROWS = 40
ROLES: dict[str, Any] = {
    "observations": ("T", "CA"), "actions": ("m",), "time": "t", "trajectory": "batch",
    "seconds": 10.0, "shortest": 5, "frozen": 8, "missing": 3,
}  # fmt: skip


def log(batches: Sequence[str] = ("a", "b")) -> dict[str, list[Any]]:
    """Columns of a plant that was logged without fault: 40 rows a batch, 10 s apart."""
    rng = np.random.default_rng(1)
    n = ROWS * len(batches)
    return {
        "batch": [batch for batch in batches for _ in range(ROWS)],
        "t": [10.0 * i for _ in batches for i in range(ROWS)],
        "T": (88 + rng.normal(size=n)).tolist(),
        "CA": (1.1 + 0.1 * rng.normal(size=n)).tolist(),
        "m": rng.uniform(size=n).tolist(),
    }


def as_csv(path: Path, columns: Mapping[str, Sequence[Any]]) -> Path:
    lines = [columns.keys(), *zip(*columns.values(), strict=True)]
    cells = [["" if cell is None else str(cell) for cell in line] for line in lines]
    path.write_text("".join(",".join(line) + "\n" for line in cells))
    return path


def read(path: Path, **changes: Any) -> tuple[Trajectories, Account]:
    data, account = open_demonstrations(
        DemonstrationSettings(**{**ROLES, "path": str(path), **changes})
    )
    assert account.kept + sum(d.rows for d in account.dropped) == account.rows
    assert account.samples == data.samples
    assert account.trajectories == len(data)
    return data, account


def complaint(path: Path, **changes: Any) -> str:
    with pytest.raises(UsageError) as caught:
        read(path, **changes)
    return str(caught.value)


def expected(columns: Mapping[str, Sequence[Any]], rows: Sequence[int]) -> np.ndarray:
    return np.stack([np.array(columns[n])[list(rows)] for n in ("T", "CA", "m")], 1).astype("f4")


def sample(data: Trajectories, i: int) -> np.ndarray:
    return np.concatenate([data.x[i], data.u[i]], axis=1)[: data.length[i]]
