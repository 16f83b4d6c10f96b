"""A recipe without Ray: a seeded random walk that can be slowed, stopped, and made to fail.

`python -m tests.cluster.toy ARGUMENTS` is the command line with this recipe in its table.
"""

import time
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from cluster.config import RunConfig, RunPath, Settings
from cluster.errors import MissingDependencyError
from cluster.evidence import Figure, Result, Section, Table
from cluster.plan import Plan
from cluster.recipes import Recipe
from cluster.run import Run

RECIPE = Recipe("toy", "tests.cluster.toy", "A random walk.", "no paper")


class Stage(Settings):
    """A block of keys."""

    rate: float = Field(0.1, gt=0, le=10)
    kind: Literal["plain", "momentum"] = "plain"
    width: int = 8


class Adam(Settings):
    """One of two solvers."""

    name: Literal["adam"] = "adam"
    beta: float = 0.9


class Sgd(Settings):
    """The other one."""

    name: Literal["sgd"] = "sgd"
    momentum: float = 0.0


class Config(RunConfig):
    """Everything that the loader can meet."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "small": {"steps": 6},
        "smoke": {"steps": 3, "stage": {"width": 2}},
    }

    steps: int = Field(4, ge=1, le=1000)
    pause: float = Field(0.0, description="Seconds that a step takes.")
    fail_at: int | None = None
    failure: Literal["bug", "dependency", "interrupt"] = "bug"
    label: str = "Where the walk ended"
    words: tuple[str, ...] = ()
    verbose: bool = False
    table: RunPath | None = None
    folder: RunPath = "inputs"
    stage: Stage = Stage()
    stages: dict[str, Stage] = Field(default_factory=dict)
    solver: Annotated[Adam | Sgd, Field(discriminator="name")] = Adam()

    def plan(self) -> Plan:
        """No bundles, hence no Ray."""
        return Plan((), self.steps, "steps", ("steps",))


def run(config: Config, run: Run) -> Result:
    """Walk, from the last checkpoint if there is one."""
    import numpy as np

    generator = np.random.default_rng(config.seeds[0])
    position, done = np.zeros(2), 0
    if (found := run.load()) is not None:
        done, arrays, state = found
        position, generator.bit_generator.state = arrays["position"], state["generator"]
    for step in range(done + 1, config.steps + 1):
        run.check_stop()
        time.sleep(config.pause)
        position = position + generator.normal(size=2)
        run.log(step, x=float(position[0]), y=float(position[1]))
        run.say(f"step {step}")
        run.save(step, {"position": position}, {"generator": generator.bit_generator.state})
        if step == config.fail_at:
            _fail(config.failure)
    x, y = (float(p) for p in position)
    return Result(
        figures={"x": Figure(x, x - 1, x + 1, 5, "m", config.label), "y": Figure(y)},
        baselines={"origin": Figure(0.0, label="Staying at home")},
        seeds=list(config.seeds),
        headline=["x"],
        summary=f"{config.label}: {x:.3f}",
        warnings=["A random walk proves nothing."],
        sections=[
            Section("Path", (config.label,), Table(("axis", "end"), (("x", f"{x:.3f}"),))),
        ],
    )


def _fail(how: str) -> None:
    if how == "dependency":
        raise MissingDependencyError("The walk needs boots; pip install boots")
    if how == "interrupt":
        raise KeyboardInterrupt
    raise ZeroDivisionError("walked into a wall")


def example_files() -> dict[str, str]:
    """What `corymb init` writes."""
    return {"run.yaml": "recipe: toy\ntable: steps.csv\n", "steps.csv": "x,y\n1,2\n"}


def main() -> None:
    """Run the command line with this recipe."""
    from cluster.cli import main as corymb
    from cluster.recipes import RECIPES

    RECIPES["toy"] = RECIPE
    corymb()


if __name__ == "__main__":
    main()
