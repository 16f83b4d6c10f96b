"""How near do experts come to the bound, and how near does a clone of unlabelled modes come to PI?

    python -m benchmarks.irl_quality [--quick]

Runs recipe `expert` on both plants and recipe `imitate` on the reactor whose set-point is hidden,
five seeds each. All controllers of a seed meet the same noise. An interval's end that must keep a
goal stands beside the mean.
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
    "expert_cstr": {"recipe": "expert", "expert": "learnt", "trajectories": 8},
    "expert_bioreactor": {"recipe": "expert", "preset": "bioreactor", "trajectories": 8},
    "clone_cstr": {"recipe": "imitate"},
}


def measure(name: str, seeds: list[int], folder: Path, *, quick: bool) -> Result:
    """Run a recipe over the seeds."""
    values = {**RUNS[name], "seeds": seeds, "output": str(folder)}
    if quick and values["recipe"] == "imitate":
        values["clone"] = {"steps": 300}
    elif quick:
        values["policy"] = {"iterations": 10}
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps(values))
    return start(configuration.load(file)).result


def claims(found: dict[str, Result]) -> list[Claim]:
    """Hold the figures against the goals; a goal must be kept by the interval's worse end."""
    clone, reactor, batch = (
        found[name] for name in ("clone_cstr", "expert_cstr", "expert_bioreactor")
    )
    made = []
    for level in ("90", "86"):
        pi = clone.baselines[f"pi.quiet_offset.{level}"].value
        ratio = clone.figures[f"iae_ratio_to_pi.{level}"]
        made.append(_claim(f"iae_ratio_to_pi.{level}", ratio, 1.10, "lower"))
        offset = clone.figures[f"clone.quiet_offset.{level}"]
        made.append(_claim(f"offset.{level}", offset, pi + 0.02, "lower", {"pi": pi}))
        bound = reactor.figures[f"iae_ratio_to_bound.{level}"]
        made.append(_claim(f"expert_ratio_to_bound.{level}", bound, 1.15, "lower"))
    made.append(_claim("mode_accuracy_20", clone.figures["mode_accuracy_20"], 0.95, "higher"))
    for k in ("k05", "k07"):
        best = batch.figures[f"ratio_to_optimum.{k}"]
        made.append(_claim(f"bioreactor.ratio_to_optimum.{k}", best, 0.98, "higher"))
    return made


def _claim(
    name: str, figure: Figure, goal: float, better: str, beside: dict[str, float] | None = None
) -> Claim:
    """The claimed value is the interval's worse end; the mean stands beside it."""
    worse = figure.high if better == "lower" else figure.low
    value = figure.value if worse is None else worse
    beside = {"mean": figure.value, **(beside or {})}
    return Claim(name, value, goal, better, beside, figure.low, figure.high)  # type: ignore[arg-type]


def main() -> None:
    """Measure, keep, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="one seed, little training")
    quick: bool = parser.parse_args().quick
    seeds = SEEDS[:1] if quick else SEEDS
    with tempfile.TemporaryDirectory() as folder:
        found = {name: measure(name, seeds, Path(folder), quick=quick) for name in RUNS}
    table = [
        {"run": run, "figure": name, "value": f.value, "low": f.low, "high": f.high}
        for run, result in found.items()
        for name, f in {**result.figures, **result.baselines}.items()
    ]
    keep("irl_quality", claims(found), seeds, table, quick=quick)
    print_claims(claims(found))


if __name__ == "__main__":
    main()
