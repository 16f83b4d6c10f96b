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
    from federated.fedgmm.example import RUN_FILE, table

    return {"run.yaml": RUN_FILE, "clinics.csv": table()}
