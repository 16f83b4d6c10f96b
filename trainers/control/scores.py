"""How well does a controller run a plant? The plant's own figures, mode by mode, with intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster.evidence import Figure, Table, interval
from cluster.report import format_number
from envs.bounds import Bound, bioreactor_bound, cstr_bound
from envs.metrics import product, tracking
from envs.rollout import Episodes
from trainers.control.closed_loop import Response
from trainers.control.plants import PlantSettings

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Measure:
    """What a column of figures is called.

    Attributes
    ----------
    name, label, unit, better : as `Figure` has them.
    """

    name: str
    label: str
    unit: str
    better: str


MEASURES: Mapping[str, tuple[Measure, ...]] = {
    "cstr": (
        Measure("iae", "IAE", "C s", "lower"),
        Measure("offset", "steady offset", "C", "lower"),
        Measure("overshoot", "overshoot", "of the step", "lower"),
        Measure("settling", "5 % settling time", "s", "lower"),
        Measure("travel", "valve travel", "", "lower"),
    ),
    "bioreactor": (
        Measure("return", "return", "", "higher"),
        Measure("product", "y2 at the end", "", "higher"),
    ),
}
"""The first one of each plant is what controllers are compared by."""


def measured(plant: PlantSettings, episodes: Episodes) -> dict[str, Floats]:
    """Figures of complete episodes, by the names of `MEASURES`, each (n,)."""
    if plant.kind == "bioreactor":
        return {"return": episodes.returns, "product": product(episodes)}
    found = tracking(episodes)
    return {
        "iae": found.iae,
        "offset": found.steady_offset,
        "overshoot": found.overshoot,
        "settling": found.settling_5,
        "travel": found.valve_travel,
    }


def figure(values: Sequence[float] | Floats, measure: Measure, label: str) -> Figure:
    """A measure's mean over independent values."""
    mean, low, high = interval(values)
    return Figure(mean, low, high, len(values), measure.unit, label, measure.better)


def cell(values: Sequence[float] | Floats) -> str:
    """The mean over independent values in a table, with half its interval where that shows."""
    if not np.isfinite(values).all():
        return "not settled"
    mean, low, _ = interval(values)
    if low is None or mean - low < 1e-6 * abs(mean):
        return f"{mean:.4g}"
    return f"{mean:.4g} ± {mean - low:.2g}"


def bound(plant: PlantSettings, level: float) -> Bound | None:
    """The best that a mode allows without noise, or None where no bound is kept."""
    try:
        return cstr_bound(level) if plant.kind == "cstr" else bioreactor_bound(level)
    except ValueError:
        return None


def level_name(plant: PlantSettings, level: float) -> str:
    """How a mode is called in names of figures: "90", "k05"."""
    return f"{level:g}" if plant.kind == "cstr" else f"k{level:g}".replace(".", "")


def level_words(plant: PlantSettings, level: float) -> str:
    """How a mode is called in sentences."""
    return f"{level:g} C" if plant.kind == "cstr" else f"k = {level:g}"


Scores = Mapping[str, Sequence[Sequence[Response]]]
"""By controller: for each seed, the responses in each mode."""


def by_seed(
    plant: PlantSettings, responses: Sequence[Sequence[Response]], mode: int, quiet: bool
) -> dict[str, Floats]:
    """Each measure's mean over the episodes of a seed, (seeds,)."""
    kinds = [measured(plant, r[mode].quiet if quiet else r[mode].noisy) for r in responses]
    return {m.name: np.array([k[m.name].mean() for k in kinds]) for m in MEASURES[plant.kind]}


def figures(plant: PlantSettings, scores: Scores, prefix: str = "") -> dict[str, Figure]:
    """Figures of every controller, mode and measure, over seeds: noisy episodes, then quiet.

    A name is like `pi.iae.90` and `pi.quiet_iae.90`.
    """
    found = {}
    for name, responses in scores.items():
        for mode, level in enumerate(plant.levels):
            for quiet in (False, True):
                values = by_seed(plant, responses, mode, quiet)
                for m in MEASURES[plant.kind]:
                    if not np.isfinite(values[m.name]).all():
                        continue  # a step that has not settled has no settling time
                    key = f"{name}.{'quiet_' if quiet else ''}{m.name}"
                    words = f"{prefix}{name}: {m.label}, {level_words(plant, level)}"
                    words += ", without noise" if quiet else ""
                    found[f"{key}.{level_name(plant, level)}"] = figure(values[m.name], m, words)
    return found


def table(plant: PlantSettings, scores: Scores, quiet: bool) -> Table:
    """A row for every controller and mode, a column for every measure; the bound's at the end."""
    measures = MEASURES[plant.kind]
    rows = []
    for mode, level in enumerate(plant.levels):
        for name, responses in scores.items():
            values = by_seed(plant, responses, mode, quiet)
            found = (cell(values[m.name]) for m in measures)
            rows.append((level_words(plant, level), name, *found))
        best = bound(plant, level)
        if best is not None:
            others = [format_number(best.y2)] if plant.kind == "bioreactor" else []
            cells = [format_number(best.value), *others]
            cells += [""] * (len(measures) - len(cells))
            rows.append((level_words(plant, level), "bound", *cells))
    names = tuple(f"{m.label}{', ' + m.unit if m.unit else ''}" for m in measures)
    return Table(("Mode", "Controller", *names), tuple(rows))
