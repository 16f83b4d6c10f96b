"""How near do experts come to the bound, and how near does a clone of unlabelled modes come to PI?

    python -m benchmarks.irl_quality [--quick]

Runs recipe `expert` on both plants and recipe `imitate` on the reactor whose set-point is hidden,
five seeds each, and clones the bioreactor's expert of the first seed five times. All controllers of
a seed meet the same noise. An interval's end that must keep a goal stands beside the mean.
"""

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from benchmarks.evidence import Claim, keep, print_claims
from cluster import config as configuration
from cluster.config import Loaded
from cluster.evidence import Figure, Result
from cluster.execute import start

SEEDS = [0, 1, 2, 3, 4]

RUNS: dict[str, dict[str, Any]] = {
    "expert_cstr": {"recipe": "expert", "expert": "learnt", "trajectories": 8},
    "expert_bioreactor": {"recipe": "expert", "preset": "bioreactor", "trajectories": 8},
    "clone_cstr": {"recipe": "imitate"},
    "demonstrations": {"recipe": "expert", "preset": "bioreactor", "seeds": SEEDS[:1]},
    "clone_bioreactor": {"recipe": "imitate", "data": {}},
}
"""In this order: the last one clones what the one before has recorded."""


def measure(seeds: list[int], folder: Path, *, quick: bool) -> dict[str, Result]:
    """Run every recipe over the seeds."""
    found: dict[str, Result] = {}
    recorded = folder
    for name, values in RUNS.items():
        if "data" in values:
            values = {**values, "data": _files(recorded)}
        done = start(_configuration(name, {"seeds": seeds, **values}, folder, quick))
        found[name], recorded = done.result, done.path
    return found


def _files(recorded: Path) -> dict[str, str]:
    """The demonstrations of a run, and their modes to judge by."""
    return {
        "path": str(recorded / "demonstrations.parquet"),
        "truth": str(recorded / "truth.parquet"),
    }


def _configuration(name: str, values: dict[str, Any], folder: Path, quick: bool) -> Loaded:
    values = {**values, "output": str(folder)}
    if quick and values["recipe"] == "imitate":
        values["clone"] = {"steps": 300}
    elif quick:
        values["policy"] = {"iterations": 10}
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps(values))
    return configuration.load(file)


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
        expert = found["demonstrations"].figures[f"expert.return.{k}"].value
        cloned = _over(found["clone_bioreactor"].figures[f"clone.return.{k}"], expert)
        made.append(_claim(f"bioreactor.clone_ratio_to_expert.{k}", cloned, 0.97, "higher"))
    return made


def _over(figure: Figure, reference: float) -> Figure:
    """A figure and its interval as shares of a positive number."""
    low, high = (None if end is None else end / reference for end in (figure.low, figure.high))
    return replace(figure, value=figure.value / reference, low=low, high=high)


def _claim(
    name: str,
    figure: Figure,
    goal: float,
    better: Literal["lower", "higher"],
    beside: dict[str, float] | None = None,
) -> Claim:
    """The claimed value is the interval's worse end; the mean stands beside it."""
    worse = figure.high if better == "lower" else figure.low
    value = figure.value if worse is None else worse
    beside = {"mean": figure.value, **(beside or {})}
    return Claim(name, value, goal, better, beside, figure.low, figure.high)


def main() -> None:
    """Measure, keep, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="one seed, little training")
    quick: bool = parser.parse_args().quick
    seeds = SEEDS[:1] if quick else SEEDS
    with tempfile.TemporaryDirectory() as folder:
        found = measure(seeds, Path(folder), quick=quick)
    held = claims(found)
    table = [
        {"run": run, "figure": name, "value": f.value, "low": f.low, "high": f.high}
        for run, result in found.items()
        for name, f in {**result.figures, **result.baselines}.items()
    ]
    keep("irl_quality", held, seeds, table, quick=quick)
    print_claims(held)


if __name__ == "__main__":
    main()
