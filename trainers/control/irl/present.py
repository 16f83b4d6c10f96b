"""From findings to evidence: the reward, its controller, and fresh policies on changed plants."""

import re
from pathlib import Path

import numpy as np
from scipy import stats

from cluster import plots
from cluster.evidence import Figure, Result, Section, Table
from cluster.plots import Interval
from cluster.run import Run
from trainers.control.imitate.present import (
    add_accuracy,
    add_ratios_to_pi,
    unused_modes,
    z_section,
)
from trainers.control.irl.config import Config
from trainers.control.irl.findings import FRESH, IRL, Findings
from trainers.control.irl.look import HELD, Look
from trainers.control.plants import PlantSettings
from trainers.control.scores import MEASURES, Measure, cell, figure, level_name, level_words
from trainers.control.sections import add_closed_loop

RATIO = "ratio_to_best_cloned"


def present(config: Config, plant: PlantSettings, found: Findings, run: Run) -> Result:
    """Build the result of a run."""
    result = Result({}, {}, list(config.seeds))
    _add_transfer(result, plant, found, run)
    _add_looks(result, plant, found, run)
    add_closed_loop(result, plant, found.responses, config.rows, run.path / "plots", IRL)
    add_ratios_to_pi(result, plant, found, IRL)
    result.warnings += unused_modes(config.clone, found)
    add_accuracy(result, found)
    result.sections.append(z_section(found, run))
    if found.given.account is not None:
        account = found.given.account
        result.warnings += [line for line in account.lines() if line.startswith("dropped")]
        result.sections.append(Section("What was read", account.notes, account.table()))
    result.headline = [n for n in (RATIO, "mode_accuracy_20") if n in result.figures]
    result.headline += [n for n in result.figures if n.startswith("iae_ratio_to_pi.")]
    result.summary = _summary(found, result)
    return result


def _summary(found: Findings, result: Result) -> str:
    start = f"A reward from {len(found.given.data)} demonstrations without labels"
    if RATIO not in result.figures:
        return start
    ratio = result.figures[RATIO].value
    return (
        f"{start}; on changed plants a fresh policy that learns from it alone has "
        f"{ratio:.2f} times the best transferred clone's {_main(found).label}"
    )


def _main(found: Findings) -> Measure:
    assert found.given.plant is not None
    return MEASURES[found.given.plant.kind][0]


def _add_transfer(result: Result, plant: PlantSettings, found: Findings, run: Run) -> None:
    """Add the mean ratio over changes and modes, each one's, and the table of all controllers."""
    if not found.transfers:
        return
    main = MEASURES[plant.kind][0]
    names = [FRESH, *(n for n in next(iter(found.transfers.values())) if n != FRESH)]
    for own in (n for n in names if n in (FRESH, IRL, "pi")):
        ratios = found.ratios(plant, own)
        words = f"{own}: {main.label} over the best clone's, mean over changes of the plant"
        mean = np.mean(list(ratios.values()), axis=(0, 2))
        name = RATIO if own == FRESH else f"{own}.{RATIO}"
        of = result.figures if own in (FRESH, IRL) else result.baselines
        of[name] = figure(mean, _ratio(main), words)
    rows, drawn = [], []
    for change, by_seed in found.ratios(plant, FRESH).items():
        for mode, of_mode in enumerate(by_seed.T):
            words = f"{change}, mode {mode + 1}"
            key = re.sub(r"\W+", "_", change).strip("_").lower()
            each = figure(of_mode, _ratio(main), words)
            result.figures[f"{RATIO}.{key}.{mode + 1}"] = each
            drawn.append(_interval(each, words))
            kept = found.transfers[change]
            cells = (cell(np.array(kept[name])[:, mode]) for name in names)
            rows.append((words, *cells, cell(of_mode)))
    file = run.artifact("plots/transfer.svg")
    plots.forest(file, drawn, "fresh policy over the best clone", reference=1.0)
    text = (
        "A fresh policy is trained on each changed plant from the frozen reward alone; it never "
        "sees the plant's own reward. The other controllers are transferred as they are. "
        f"{main.label}{', ' + main.unit if main.unit else ''}, under the plant's noise, the same "
        f"for all; {main.better} is better. The ratio is to the better clone of each row.",
    )
    table = Table(("Change", *names, "ratio"), tuple(rows))
    result.sections.append(Section("On changed plants", text, table, "plots/transfer.svg"))


def _ratio(main: Measure) -> Measure:
    return Measure("ratio", "", "", main.better)


def _interval(each: Figure, label: str) -> Interval:
    low = each.value if each.low is None else each.low
    high = each.value if each.high is None else each.high
    return Interval(label, each.value, low, high)


def _add_looks(result: Result, plant: PlantSettings, found: Findings, run: Run) -> None:
    """Add where the reward would rest, how it ranks errors, and its heat maps."""
    for mode, level in enumerate(plant.levels if found.looks else ()):
        looks = [of_seed[mode] for of_seed in found.looks]
        name, words = level_name(plant, level), level_words(plant, level)
        result.figures[f"reward_peak_error.{name}"] = figure(
            [abs(one.peak) for one in looks],
            Measure("peak", "", "C", "lower"),
            f"distance from the set-point to where the reward would rest, {words}",
        )
        ranks = [stats.spearmanr(one.resting, -np.abs(one.error)).statistic for one in looks]
        result.figures[f"reward_rank_correlation.{name}"] = figure(
            ranks,
            Measure("rank", "", "", "higher"),
            f"rank correlation of the reward at rest with -|error|, {words}",
        )
        file = run.artifact(f"plots/reward-{name}.svg")
        _draw(looks[0], file)
        caption = (
            f"The first seed's reward, {words}: from rest at an error, the valve is put to a "
            f"position and held for {HELD} samples. Dashed: where the reward would rest."
        )
        result.sections.append(
            Section(f"The reward, {words}", svg=f"plots/{file.name}", caption=caption)
        )


def _draw(look: Look, file: Path) -> None:
    """Draw a reward over error and valve, and where it would rest."""
    with plots.drawing(file) as axes:
        levels = np.linspace(look.moved.min(), look.moved.max(), 15)
        shades = axes.contourf(look.error, look.valve, look.moved, levels, cmap="viridis")
        axes.figure.colorbar(shades, ax=axes, label="reward")
        axes.axvline(look.peak, color=plots.TRUTH, ls=(0, (5, 2)), lw=1.4)
        axes.set_xlabel("error: set-point less temperature, C")
        axes.set_ylabel("valve position m")
