"""What does a controller do, to look at? Curves of a plant over time, with bands over seeds."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cluster import plots
from cluster.plots import Line
from trainers.control.closed_loop import Response
from trainers.control.plants import SECONDS, PlantSettings
from trainers.control.scores import Scores, bound, level_name, level_words

SHOWN = {
    "cstr": (("T", "temperature, C"), ("m", "valve position m")),
    "bioreactor": (("y2", "product y2"), ("u1", "control u1"), ("u2", "control u2")),
}
"""The fields that are drawn, each in a picture of its own."""

TIME = {"cstr": ("time, min", 60.0), "bioreactor": ("time", 1.0)}
"""What the axis of time is called, and how much of `SECONDS` is one of it."""


def response_pictures(
    plant: PlantSettings, scores: Scores, folder: Path
) -> list[tuple[str, str, str]]:
    """Draw each field in each mode; return title, file and caption of every picture."""
    found = []
    for mode, level in enumerate(plant.levels):
        for field, label in SHOWN[plant.kind]:
            file = folder / f"{field}-{level_name(plant, level)}.svg"
            lines = [_line(plant, name, r, mode, field) for name, r in scores.items()]
            lines += _bound_line(plant, level, field)
            plots.lines(file, lines, TIME[plant.kind][0], label)
            caption = "Quiet episodes; bands are two standard errors over seeds."
            found.append((f"{label}, {level_words(plant, level)}", file.name, caption))
    return found


def _axis(plant: PlantSettings, samples: int) -> np.ndarray:
    return np.arange(1, samples + 1) * (SECONDS[plant.kind] / TIME[plant.kind][1])


def _line(
    plant: PlantSettings, name: str, responses: Sequence[Sequence[Response]], mode: int, field: str
) -> Line:
    runs = np.stack([r[mode].quiet.fields[field][0] for r in responses])
    mean = runs.mean(0)
    axis = _axis(plant, len(mean))
    if len(runs) < 2:
        return Line(name, axis, mean)
    half = 2 * runs.std(0, ddof=1) / len(runs) ** 0.5
    return Line(name, axis, mean, mean - half, mean + half)


def _bound_line(plant: PlantSettings, level: float, field: str) -> list[Line]:
    best = bound(plant, level)
    column = {"m": 0, "u1": 0, "u2": 1}.get(field)
    if best is None or column is None:
        return []
    actions = best.actions[:, column]
    return [Line("bound", _axis(plant, len(actions)), actions, reference=True)]
