"""What a report of the recipe imitate warns of."""

from pathlib import Path

import numpy as np
import pytest

from cluster.evidence import Result
from cluster.run import Run
from trainers.control.imitate.config import Config
from trainers.control.imitate.data import Demonstrations
from trainers.control.imitate.findings import Findings
from trainers.control.imitate.present import present
from trainers.control.trajectories import Trajectories


def presented(folder: Path, z: np.ndarray, **clone: object) -> Result:
    """The result of clones of a plant that cannot be simulated, with these parameters of q."""
    x = np.zeros((3, 4, 1), np.float32)
    data = Trajectories(
        ("T",), ("m",), 10.0, np.array(["a", "b", "c"]), x, x, np.full(3, 4)
    )  # fmt: skip
    config = Config.model_validate({"recipe": "imitate", "clone": clone})
    found = Findings(Demonstrations(data, None, None), gain=[1.0], z=z.astype(np.float32))
    with Run.open(recipe="imitate", config_yaml="", origins={}, output=folder) as run:
        result = present(config, found, run)
        run.close(result)
    return result


def logits(*likeliest: int, modes: int) -> np.ndarray:
    """Parameters of a discrete q, (n, modes), by the mode that is the likeliest of each."""
    return 2 * np.eye(modes)[list(likeliest)] - 1


def test_more_modes_than_are_used_are_warned_of(tmp_path: Path) -> None:
    result = presented(tmp_path, logits(*[2, 0, 2, 2] * 5, modes=4), modes=4)
    said = "q uses 2 of 4 modes on 20 held-out trajectories; set clone.modes to 2"
    assert said in result.warnings


@pytest.mark.parametrize(
    ("z", "clone"),
    [
        (logits(*[1, 1, 1, 0] * 5, modes=2), {"modes": 2}),
        (logits(*[0, 0, 1, 0, 2], modes=4), {"modes": 4}),  # so few may lack one by chance
        (logits(*[0] * 20, modes=1), {"modes": 1}),
        (np.ones((20, 4)), {"modes": 2, "context": "gaussian"}),  # two means, two deviations
    ],
)
def test_modes_that_are_in_use_or_may_be_are_not(
    tmp_path: Path, z: np.ndarray, clone: dict[str, object]
) -> None:
    assert not any("clone.modes" in warning for warning in presented(tmp_path, z, **clone).warnings)
