"""What is a learnt reward worth on a plant that has changed, where clones can only be transferred?

    python -m benchmarks.irl_transfer [--quick]

Runs recipe `irl`, five seeds: a reward from unlabelled demonstrations of PI is frozen, the plant is
changed in six ways, and on each a fresh policy learns from the reward alone. All controllers of a
seed meet the same noise. The same is done where the set-point is hidden, so that the reward must
have found it; a set-point that is not seen cannot be changed. An interval's worse end must keep the
goal.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.evidence import Claim, keep, print_claims
from cluster import config as configuration
from cluster.evidence import Figure, Result
from cluster.execute import start

SEEDS = [0, 1, 2, 3, 4]

RUNS: dict[str, dict[str, Any]] = {
    "seen": {},
    "hidden": {"plant": {"observe": ["CA", "T", "TC", "b"]}},
}

BEFORE = {"seen": "", "hidden": "hidden."}
"""What claims of a run begin with."""


def measure(name: str, seeds: list[int], folder: Path, *, quick: bool) -> Result:
    """Run the recipe over the seeds."""
    values = {"recipe": "irl", **RUNS[name], "seeds": seeds, "output": str(folder)}
    if quick:
        values["preset"] = "smoke"
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps(values))
    return start(configuration.load(file)).result


def claims(found: dict[str, Result]) -> list[Claim]:
    """Below 1 the fresh policy is better than the best transferred clone."""
    made = []
    for name, result in found.items():
        own = result.figures["ratio_to_best_cloned"]
        beside = {
            "mean": own.value,
            "irl": result.figures["irl.ratio_to_best_cloned"].value,
            "pi": result.baselines["pi.ratio_to_best_cloned"].value,
        }
        worse = own.value if own.high is None else own.high
        claim = f"{BEFORE[name]}ratio_to_best_cloned"
        made.append(Claim(claim, worse, 1.0, "lower", beside, own.low, own.high))
    return made


def rows(run: str, figures: dict[str, Figure]) -> list[dict[str, Any]]:
    """The table's rows of a run."""
    return [
        {"run": run, "figure": name, "value": f.value, "low": f.low, "high": f.high}
        for name, f in figures.items()
    ]


def main() -> None:
    """Measure, keep, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="one seed, hardly any training")
    quick: bool = parser.parse_args().quick
    seeds = SEEDS[:1] if quick else SEEDS
    with tempfile.TemporaryDirectory() as folder:
        found = {name: measure(name, seeds, Path(folder), quick=quick) for name in RUNS}
    table = [row for run, r in found.items() for row in rows(run, {**r.figures, **r.baselines})]
    made = claims(found)
    keep("irl_transfer", made, seeds, table, quick=quick)
    print_claims(made)


if __name__ == "__main__":
    main()
