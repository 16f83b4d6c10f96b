"""The form in which a benchmark's outcome is kept."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from cluster import environment
from cluster.files import write_json

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Claim:
    """A figure held against a goal.

    Attributes
    ----------
    name : of the claim, such as "mse.abs".
    value, low, high : what was measured, with its 95 % interval where there is one.
    goal : what was aimed at.
    better : direction.
    beside : the other sides of the comparison, measured or published.
    """

    name: str
    value: float
    goal: float
    better: Literal["lower", "higher"]
    beside: dict[str, float]
    low: float | None = None
    high: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the goal is reached."""
        return self.value <= self.goal if self.better == "lower" else self.value >= self.goal


def write(
    name: str, claims: Sequence[Claim], seeds: Sequence[int], table: Any, *, quick: bool
) -> None:
    """Write the results file; a quick run goes to a file of its own, which git ignores."""
    machine = environment.capture()
    commit = machine.pop("git")
    data = {
        "command": f"python -m benchmarks.{name}" + (" --quick" if quick else ""),
        "commit": commit,
        "seed": list(seeds),
        "machine": machine,
        "claims": [{**asdict(c), "holds": c.holds} for c in claims],
        "table": table,
    }
    path = RESULTS / (f"{name}.quick.json" if quick else f"{name}.json")
    write_json(path, data)
    for claim in claims:
        sign = "<=" if claim.better == "lower" else ">="
        beside = ", ".join(f"{k} {v:.4g}" for k, v in claim.beside.items())
        verdict = "holds" if claim.holds else "MISSED"
        print(f"{claim.name:28} {claim.value:.4g} {sign} {claim.goal:g}  {verdict}  ({beside})")
    print(f"written to {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}",
          file=sys.stderr)  # fmt: skip
