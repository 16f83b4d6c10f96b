"""From findings to evidence: the clone beside plain cloning, PI and the bound."""

from collections.abc import Sequence

import numpy as np

from cluster import plots
from cluster.evidence import Result, Section, Table
from cluster.report import format_number
from cluster.run import Run
from trainers.control.imitate.config import Config
from trainers.control.imitate.findings import Findings
from trainers.control.imitate.settings import CloneSettings
from trainers.control.plants import PlantSettings
from trainers.control.scores import (
    MEASURES,
    Measure,
    by_seed,
    cell,
    figure,
    level_name,
    level_words,
)
from trainers.control.sections import add_closed_loop

USEFUL = 0.02
"""Nats a sample that z must add for the modes to be worth having."""

CHANCE = 0.05
"""That one of K equally frequent modes is missing among the trajectories held out; where it is
larger, q cannot be said to leave one unused."""


def present(config: Config, found: Findings, run: Run) -> Result:
    """Build the result of a run."""
    result = Result({}, {}, list(config.seeds))
    gain = Measure("gain", "", "nats a sample", "higher")
    result.figures["gain_of_modes"] = figure(
        found.gain, gain, "held-out log-likelihood that modes add"
    )
    if np.mean(found.gain) < USEFUL:
        result.warnings.append(
            f"z adds {format_number(float(np.mean(found.gain)))} nats a sample to what plain "
            "cloning explains of held-out trajectories. Either there is one mode, or the "
            "observations already tell which: plain cloning is enough."
        )
    result.warnings += unused_modes(config.clone, found)
    add_accuracy(result, found)
    plant = found.given.plant
    if plant is not None and found.responses:
        add_closed_loop(result, plant, found.responses, config.rows, run.path / "plots", "clone")
        add_ratios_to_pi(result, plant, found, "clone")
    else:
        result.warnings.append(
            "The plant cannot be simulated, so the clone was not run in closed loop. Held-out "
            "log-likelihood does not show how errors add up there."
        )
    account = found.given.account
    if account is not None:
        result.warnings += [line for line in account.lines() if line.startswith("dropped")]
        result.sections.append(Section("What was read", account.notes, account.table()))
    if len(found.z):
        result.sections.append(z_section(found, run))
    result.summary = _summary(config, found, result)
    result.headline = [name for name in _HEADLINE if name in result.figures] + [
        name for name in result.figures if name.startswith("iae_ratio_to_pi.")
    ]
    return result


_HEADLINE = ("gain_of_modes", "mode_accuracy_20")


def _summary(config: Config, found: Findings, result: Result) -> str:
    n, k = len(found.given.data), config.clone.modes
    start = f"One controller with {k} modes from {n} demonstrations without labels"
    if "mode_accuracy_20" not in result.figures:
        return start
    share = result.figures["mode_accuracy_20"].value
    return f"{start}; it tells the mode of {share:.1%} of new ones after 20 samples"


def unused_modes(settings: CloneSettings, found: Findings) -> list[str]:
    """Say how many modes q uses, where it uses fewer than it has."""
    modes, held = settings.modes, len(found.z)
    if settings.context != "discrete" or modes * (1 - 1 / modes) ** held > CHANCE:
        return []  # the length of a Gaussian z is no number of modes
    used = len(np.unique(found.z.argmax(1)))
    if used == modes:
        return []
    return [
        f"q uses {used} of {modes} modes on {held} held-out trajectories; set clone.modes to {used}"
    ]


def add_accuracy(result: Result, found: Findings) -> None:
    """Add the shares of held-out modes that q finds, by how many samples it saw."""
    if not found.accuracy:
        return
    measure = Measure("accuracy", "", "", "higher")
    for samples in found.accuracy[0]:
        result.figures[f"mode_accuracy_{samples}"] = figure(
            [a[samples] for a in found.accuracy],
            measure,
            f"share of modes found after {samples} samples",
        )


def add_ratios_to_pi(result: Result, plant: PlantSettings, found: Findings, own: str) -> None:
    """Add the IAE over PI's, under the same noise, of the controller called `own`."""
    if "pi" not in found.responses:
        return
    main = MEASURES[plant.kind][0].name
    for mode, level in enumerate(plant.levels):
        ratio = (
            by_seed(plant, found.responses[own], mode, False)[main]
            / by_seed(plant, found.responses["pi"], mode, False)[main]
        )
        measure = Measure("", "", "", "lower")
        words = f"{own}: IAE over PI's, {level_words(plant, level)}"
        result.figures[f"iae_ratio_to_pi.{level_name(plant, level)}"] = figure(
            ratio, measure, words
        )


def z_section(found: Findings, run: Run) -> Section:
    """Two numbers of q for every held-out trajectory, coloured by the true mode where known."""
    file = run.artifact("plots/z.svg")
    flat = found.z - found.z.mean(0)
    _, _, axes = np.linalg.svd(flat, full_matrices=False)
    at = flat @ axes[:2].T
    with plots.drawing(file) as drawn:
        modes: Sequence[int] = [0] if found.z_mode is None else sorted(set(found.z_mode.tolist()))
        for mode in modes:
            rows = np.ones(len(at), bool) if found.z_mode is None else found.z_mode == mode
            second = at[rows, 1] if at.shape[1] > 1 else np.zeros(rows.sum())
            label = "trajectory" if found.z_mode is None else f"true mode {mode}"
            colour = plots.PALETTE[mode % len(plots.PALETTE)]
            drawn.plot(at[rows, 0], second, "o", ms=4, alpha=0.6, color=colour, label=label)
        drawn.set_xlabel("first principal axis of q's parameters")
        drawn.set_ylabel("second")
        drawn.legend()
    rows = tuple(
        (name, cell([a[name] for a in found.accuracy]))
        for name in (found.accuracy[0] if found.accuracy else {})
    )
    accuracy = Table(("Samples seen", "Share of modes found"), rows) if rows else None
    text = ("What q says of held-out trajectories after 20 samples.",)
    return Section("Which mode is it?", text, accuracy, "plots/z.svg")
