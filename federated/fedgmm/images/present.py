"""The report's part on image scenarios."""

from collections.abc import Sequence

import numpy as np

from cluster import plots
from cluster.evidence import Figure, Result, Section, Table
from cluster.plots import Line
from cluster.report import format_interval, format_number
from cluster.run import Run
from federated.fedgmm.config import Config
from federated.fedgmm.images.analyse import ImageFindings
from federated.fedgmm.images.scenarios import rounding_floor
from federated.fedgmm.rows import Floats
from federated.fedgmm.words import COLOURS, name_of, over_seeds

BINS = 40

SHOWN = {
    "images_x": "The treatment is an image, the instruments are numbers.",
    "images_z": "The instrument is an image, the treatment is a number.",
    "images_xz": "Treatment and instrument are images.",
}


def present_images(config: Config, found: Sequence[ImageFindings], run: Run) -> Result:
    """Build the result of a run from the findings of its studies."""
    result = Result({}, {}, list(config.seeds))
    scenario = f"{config.data.source}, {config.data.scenario}"
    for key in dict.fromkeys(key for f in found for key in f.predictions):
        values = [f.error(f.predictions[key]) for f in found if key in f.predictions]
        result.figures[f"mse.{key}"] = over_seeds(values, f"{scenario}: {name_of(key)}, test MSE")
    for key in found[0].baselines:
        values = [f.error(f.baselines[key]) for f in found]
        result.baselines[f"mse.{key}"] = over_seeds(values, f"{scenario}: {name_of(key)}, test MSE")
    floor = [rounding_floor(f.study.data) / f.study.variance for f in found]
    if max(floor) > 0:
        label = f"{scenario}: {name_of('floor')}, test MSE"
        result.baselines["mse.floor"] = over_seeds(floor, label)
    for f in found:
        result.warnings += [
            f"{name_of(k)}, seed {f.study.seed}: {v}" for k, v in f.diverged.items()
        ]
    best = min(result.figures, key=lambda k: result.figures[k].value)
    result.headline = [best, *[k for k in result.figures if k != best]][:6]
    figure = result.figures[best]
    result.summary = (
        f"Best federated estimate of g: {figure.label} {format_number(figure.value)}; "
        f"direct regression {format_number(result.baselines['mse.direct'].value)}"
    )
    result.sections.append(_errors(result, found))
    result.sections.append(_curve(found[0], run))
    if found[0].games:
        result.sections.append(_rounds(found[0], run))
    return result


def _errors(result: Result, found: Sequence[ImageFindings]) -> Section:
    data = found[0].study.data
    every = [*result.figures.items(), *result.baselines.items()]
    rows = [
        _row(key, figure, found[0]) for key, figure in sorted(every, key=lambda kv: kv[1].value)
    ]
    text = (
        f"{SHOWN[data.which]} A number v becomes a random image of class "
        "round(min(max(1.5 v + 5, 0), 9)); no image is in both the training and the test set.",
        f"{len(data)} rows, {len(found[0].study.parts)} clients. Errors are mean squared "
        "differences from the true curve at fresh treatments, in units of the outcome's variance, "
        f"averaged over {len(found)} {'seed' if len(found) == 1 else 'seeds'}."
        + (
            " The class rounds the treatment, so that not even the best function of an image "
            "reaches zero: the table has that floor."
            if "mse.floor" in result.baselines
            else ""
        ),
    )
    columns = ("Estimator", "Test MSE", "95 % interval", "Rounds")
    return Section("Error", text, Table(columns, tuple(rows)))


def _row(key: str, figure: Figure, found: ImageFindings) -> tuple[str, str, str, str]:
    short = key.split(".")[-1]
    rounds = found.rounds.get(short)
    return (
        name_of(short), format_number(figure.value), format_interval(figure),
        "" if rounds is None else str(rounds),
    )  # fmt: skip


def _curve(found: ImageFindings, run: Run) -> Section:
    """Mean estimate by the hidden treatment, which only the report knows."""
    data = found.study.data
    edges = np.quantile(data.test_hidden_x, np.linspace(0.005, 0.995, BINS + 1))
    lines = [Line("truth", *_binned(data.test_hidden_x, data.test_g0, edges), reference=True)]
    for key, prediction in found.predictions.items():
        x, g = _binned(data.test_hidden_x, prediction, edges)
        lines.append(Line(name_of(key), x, g, colour=COLOURS.get(key, "")))
    x, g = _binned(data.test_hidden_x, found.baselines["direct"], edges)
    lines.append(Line(name_of("direct"), x, g, colour=plots.GREY))
    file = f"plots/curve-{found.study.name}.svg"
    plots.lines(run.artifact(file), lines, "hidden treatment x", "mean estimate of g")
    return Section(
        "The estimated curve",
        svg=file,
        caption=f"Means of the estimates at test treatments in {BINS} bins of the hidden x.",
    )


def _binned(x: Floats, values: Floats, edges: Floats) -> tuple[Floats, Floats]:
    index = np.digitize(x, edges) - 1
    inside = (index >= 0) & (index < BINS)
    count = np.bincount(index[inside], minlength=BINS)
    mean_x = np.bincount(index[inside], x[inside], BINS) / count
    return mean_x, np.bincount(index[inside], values[inside], BINS) / count


def _rounds(found: ImageFindings, run: Run) -> Section:
    lines = []
    for key, trained in found.games.items():
        errors = np.array([h["mse"] for h in trained.history])
        steps = np.arange(1, len(errors) + 1)
        lines.append(Line(name_of(key), steps, errors, colour=COLOURS.get(key, "")))
    span = np.array([1.0, float(max(len(line.x) for line in lines))])
    level = found.error(found.predictions["features"])
    label = f"{name_of('features')} ({found.rounds['features']} rounds)"
    lines.append(Line(label, span, np.full(2, level), colour=COLOURS["features"]))
    file = f"plots/rounds-{found.study.name}.svg"
    plots.lines(run.artifact(file), lines, "communication round", "test MSE / Var(y)", log=True)
    return Section(
        "Rounds against error",
        svg=file,
        caption="The game's error after each round; the level line needs the stated rounds.",
    )
