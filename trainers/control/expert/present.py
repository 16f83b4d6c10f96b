"""From episodes to evidence: the expert beside PI and the bound."""

from collections.abc import Mapping, Sequence

from cluster.evidence import Figure, Result, Section
from cluster.run import Run
from envs.rollout import Episodes
from trainers.control.closed_loop import Response
from trainers.control.expert.config import Config
from trainers.control.pictures import response_pictures
from trainers.control.scores import (
    MEASURES,
    Measure,
    bound,
    by_seed,
    figure,
    figures,
    level_name,
    level_words,
    table,
)


def present(
    config: Config,
    found: Mapping[str, Sequence[Sequence[Response]]],
    recorded: Episodes,
    run: Run,
) -> Result:
    """Build the result of a run."""
    plant = config.plant
    result = Result({}, {}, list(config.seeds))
    for name, value in figures(plant, found).items():
        (result.figures if name.startswith("expert.") else result.baselines)[name] = value
    _add_ratios(config, found, result)
    main = MEASURES[plant.kind][0]
    for level in plant.levels:
        name = level_name(plant, level)
        ratio = f"{_RATIO[plant.kind]}.{name}"
        result.headline += [ratio if ratio in result.figures else f"expert.{main.name}.{name}"]
    steps = int(recorded.length.sum())
    result.figures["demonstrations.samples"] = Figure(
        steps, n=len(recorded.length), label="samples recorded"
    )
    who = "PI" if config.expert == "pi" else config.policy.algorithm.upper()
    result.summary = (
        f"{len(recorded.length)} demonstrations of {who} in {len(plant.levels)} modes, without "
        f"labels, {steps} samples: demonstrations.parquet"
    )
    result.sections += _sections(config, found, run)
    return result


_RATIO = {"cstr": "iae_ratio_to_bound", "bioreactor": "ratio_to_optimum"}


def _add_ratios(
    config: Config, found: Mapping[str, Sequence[Sequence[Response]]], result: Result
) -> None:
    """Add the quiet episode's figure over the bound, which knows of no noise either."""
    plant = config.plant
    main = MEASURES[plant.kind][0]
    for mode, level in enumerate(plant.levels):
        best = bound(plant, level)
        if best is None:
            continue
        values = by_seed(plant, found["expert"], mode, quiet=True)[main.name] / best.value
        words = f"expert: {main.label} over the bound's, {level_words(plant, level)}"
        name = f"{_RATIO[plant.kind]}.{level_name(plant, level)}"
        result.figures[name] = figure(values, Measure(name, "", "", main.better), words)
        result.baselines[f"bound.{main.name}.{level_name(plant, level)}"] = Figure(
            best.value, unit=main.unit, better=main.better,
            label=f"bound: {main.label}, {level_words(plant, level)}",
        )  # fmt: skip


def _sections(
    config: Config, found: Mapping[str, Sequence[Sequence[Response]]], run: Run
) -> list[Section]:
    plant = config.plant
    parts = []
    if plant.kind == "cstr" and plant.noise > 0:
        noisy = (
            f"{config.rows} episodes in each mode, with the plant's noise; every controller meets "
            "the same. Means over seeds with 95 % intervals.",
        )
        parts.append(Section("Under noise", noisy, table(plant, found, quiet=False)))
    quiet = ("One episode in each mode. The bound knows the plant and the future.",)
    parts.append(Section("Without noise", quiet, table(plant, found, quiet=True)))
    for title, file, caption in response_pictures(plant, found, run.path / "plots"):
        parts.append(Section(title, svg=f"plots/{file}", caption=caption))
    return parts
