"""The one table of recipes: a name, the module that holds it, and a line of help.

Modules are imported when a recipe is run or its configuration checked, never to list them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, cast

from cluster.errors import UsageError

if TYPE_CHECKING:
    from cluster.config import RunConfig
    from cluster.evidence import Result
    from cluster.run import Run


@dataclass(frozen=True)
class Recipe:
    """One published method, as the command line knows it."""

    name: str
    module: str
    help: str
    paper: str

    @property
    def package(self) -> ModuleType:
        """The package that holds it, imported; that must not import torch, ray or flwr."""
        return import_module(self.module)

    @property
    def config(self) -> type["RunConfig"]:
        """The recipe's configuration model."""
        return cast("type[RunConfig]", self.package.Config)

    @property
    def run(self) -> Callable[["RunConfig", "Run"], "Result"]:
        """The function that runs it inside a Ray session."""
        return cast("Callable[[RunConfig, Run], Result]", self.package.run)


RECIPES: dict[str, Recipe] = {
    r.name: r
    for r in (
        Recipe(
            "fedgmm",
            "federated.fedgmm",
            "Federated instrumental-variable estimation: causal effects without moving rows.",
            "arXiv 2505.21012",
        ),
        Recipe(
            "expert",
            "trainers.control.expert",
            "Process control: an expert for a simulated plant, and demonstrations of it.",
            "arXiv 2505.21026",
        ),
        Recipe(
            "imitate",
            "trainers.control.imitate",
            "Process control: one controller cloned from demonstrations in unlabelled modes.",
            "arXiv 2505.21026",
        ),
        Recipe(
            "irl",
            "trainers.control.irl",
            "Process control: the reward behind demonstrations, tried on plants that change.",
            "arXiv 2505.21026",
        ),
    )
}


def find(name: str) -> Recipe:
    """Return the recipe called `name`; raises UsageError with the nearest name if there is none."""
    if name in RECIPES:
        return RECIPES[name]
    near = get_close_matches(name, RECIPES, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"known recipes: {', '.join(RECIPES)}"
    raise UsageError(f"There is no recipe '{name}'; {hint}")
