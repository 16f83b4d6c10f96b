"""Recipe `expert`: a controller that knows the mode, and demonstrations of it without labels."""

from typing import TYPE_CHECKING

from trainers.control.expert.config import Config

if TYPE_CHECKING:
    from cluster.evidence import Result
    from cluster.run import Run

__all__ = ["Config", "example_files", "run"]


def run(config: Config, run: "Run") -> "Result":
    """Train or set up the expert and record it; see `trainers.control.expert.recipe`."""
    from trainers.control.expert import recipe  # torch and RLlib, only when something is run

    return recipe.run(config, run)


def example_files() -> dict[str, str]:
    """The run file that `corymb init` writes."""
    return {"run.yaml": RUN_FILE}


RUN_FILE = """\
# Demonstrations of a controller that knows the mode. Check it with: corymb validate run.yaml
recipe: expert
preset: small

plant:
  kind: cstr        # the stirred-tank reactor, or `bioreactor`

expert: pi          # a classical controller, or `learnt`: by reinforcement learning on RLlib
trajectories: 2112  # in demonstrations.parquet of the run; their modes are in truth.parquet
"""
