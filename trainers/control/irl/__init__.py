"""Recipe `irl`: the reward behind unlabelled demonstrations, and a controller in several modes."""

from pathlib import Path
from typing import TYPE_CHECKING

from trainers.control.irl.config import Config

if TYPE_CHECKING:
    from cluster.evidence import Result
    from cluster.run import Run

__all__ = ["Config", "example_files", "export", "predict", "run"]

RUN_FILE = """\
# The reward behind demonstrations in several modes. Check it with: corymb validate run.yaml
recipe: irl
preset: small

# Demonstrations that recipe expert wrote; without a path, PI is recorded on the spot.
# data:
#   path: demonstrations.parquet
#   truth: truth.parquet    # modes, only to judge by; leave it out where nobody knows them

clone:
  modes: 2                  # how many modes to look for

# Plants on which a fresh policy learns from the frozen reward; by default six.
# transfer:
#   changes:
#     - {name: fouled jacket, factors: {U: 0.8}}
#     - {name: new set-points, modes: [91, 87]}
"""


def run(config: Config, run: "Run") -> "Result":
    """Learn the reward and try it; see `trainers.control.irl.recipe`."""
    from trainers.control.irl import recipe  # torch and RLlib, only when something is run

    return recipe.run(config, run)


def example_files() -> dict[str, str]:
    """The run file that `corymb init` writes."""
    return {"run.yaml": RUN_FILE}


def export(place: Path, folder: Path) -> dict[str, float]:
    """Write a run's controller as ONNX; see `trainers.control.export`."""
    from trainers.control.export import export_run  # torch, only when something is exported

    return export_run(place, folder)


def predict(place: Path, file: Path, mode: int | None, infer: int | None) -> str:
    """Ask a controller for actions; see `trainers.control.predict`."""
    from trainers.control.predict import predict_file

    return predict_file(place, file, mode, infer)
