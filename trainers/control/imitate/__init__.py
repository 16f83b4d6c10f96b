"""Recipe `imitate`: one controller from demonstrations in several modes that nobody labelled."""

from pathlib import Path
from typing import TYPE_CHECKING

from trainers.control.imitate.config import Config

if TYPE_CHECKING:
    from cluster.evidence import Result
    from cluster.run import Run

__all__ = ["Config", "example_files", "export", "predict", "run"]

RUN_FILE = """\
# One controller from demonstrations in several modes. Check it with: corymb validate run.yaml
recipe: imitate
preset: small

# Demonstrations that recipe expert wrote; without a path, PI is recorded on the spot.
# data:
#   path: demonstrations.parquet
#   truth: truth.parquet    # modes, only to judge by; leave it out where nobody knows them
#
# Or a historian's export, CSV or Parquet:
# data:
#   path: export.csv
#   observations: [reactor_temperature, jacket_temperature]
#   actions: [valve]
#   time: timestamp
#   gap: 600                # seconds without a row end an episode; or `trajectory`, a column
#   seconds: 10             # samples are this far apart, after resampling

clone:
  modes: 2                  # how many modes to look for
"""


def run(config: Config, run: "Run") -> "Result":
    """Clone the demonstrations and judge the clone; see `trainers.control.imitate.recipe`."""
    from trainers.control.imitate import recipe  # torch, only when something is run

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
