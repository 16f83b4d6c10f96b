"""Recipe `fedgmm`: federated instrumental-variable estimation (arXiv 2505.21012)."""

from typing import TYPE_CHECKING

from federated.fedgmm.config import Config

if TYPE_CHECKING:
    from cluster.evidence import Result
    from cluster.run import Run

__all__ = ["Config", "example_files", "run"]


def run(config: Config, run: "Run") -> "Result":
    """Run the analysis; see `federated.fedgmm.recipe`."""
    from federated.fedgmm import recipe  # torch and Flower, only when something is run

    return recipe.run(config, run)


def example_files() -> dict[str, str]:
    """Files that `corymb init` writes: a run file, and a small table to replace."""
    from federated.fedgmm import example

    return {"run.yaml": example.RUN_FILE, "clinics.csv": example.table()}
