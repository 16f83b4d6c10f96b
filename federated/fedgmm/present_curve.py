"""The report's part on curves: errors against a truth, curves with bands, rounds against error."""

from collections.abc import Sequence

import numpy as np

from cluster import plots
from cluster.evidence import Figure, Result, Section, Table
from cluster.plots import Line
from cluster.report import format_interval, format_number
from cluster.run import Run
from federated.fedgmm.analyse import CurveFindings, mean_of
from federated.fedgmm.words import COLOURS, SKEW_ON_TREATMENT, WEAK, name_of, over_seeds


def add_known_curves(result: Result, found: Sequence[CurveFindings], run: Run, prefix: str) -> None:
    """Add errors over seeds, and the plots of the first seed, of studies whose truth is known."""
    truth = found[0].study.dataset.truth
    assert truth is not None
    for key in list(dict.fromkeys(key for f in found for key in f.predictions)):
        label = f"{truth.g0}: {name_of(key)}, test MSE"
        values = [f.error(f.predictions[key]) for f in found if key in f.predictions]
        result.figures[f"{prefix}mse.{key}"] = over_seeds(values, label)
    for key in found[0].baselines:
        label = f"{truth.g0}: {name_of(key)}, test MSE"
        values = [f.error(f.baselines[key]) for f in found]
        result.baselines[f"{prefix}mse.{key}"] = over_seeds(values, label)
    alone = [float(np.mean([f.error(mean_of(c)) for c in f.local])) for f in found]
    label = f"{truth.g0}: {name_of('local')}, test MSE"
    result.baselines[f"{prefix}mse.local"] = over_seeds(alone, label)
    federated = [k for k in result.figures if k.startswith(f"{prefix}mse.")]
    p = [f.curves["sieve"].estimate.j_p for f in found if "sieve" in f.curves]
    if p and p[0] is not None:
        label = f"{truth.g0}: Hansen's J test of the sieve, p-value (first seed)"
        result.figures[f"{prefix}j_p"] = Figure(p[0], n=found[0].scale.n, label=label)
    best = min(federated, key=lambda k: result.figures[k].value)
    result.headline += [best, *[k for k in federated if k != best][:1]]
    for f in found:
        result.warnings += [
            f"{name_of(k)}, seed {f.study.seed}: {v}" for k, v in f.diverged.items()
        ]
    if found[0].study.skewed_on_treatment:
        result.warnings.append(SKEW_ON_TREATMENT)
    if "control" in found[0].predictions:
        result.warnings.append(
            "The control function assumes an additive first stage, x = m(z) + v, beyond what "
            "GMM needs. The synthetic processes satisfy it; real data may not."
        )
    result.sections.append(_error_section(result, found, prefix))
    result.sections.append(_curve_section(found[0], run))
    if found[0].games:
        result.sections.append(_rounds_section(found[0], run))


def _error_section(result: Result, found: Sequence[CurveFindings], prefix: str) -> Section:
    study = found[0].study
    mine = [(k, v) for k, v in result.figures.items() if k.startswith(f"{prefix}mse.")]
    base = [(k, v) for k, v in result.baselines.items() if k.startswith(f"{prefix}mse.")]
    rows = []
    for key, figure in sorted([*mine, *base], key=lambda kv: kv[1].value):
        short = key.split(".")[-1]
        rounds = found[0].rounds.get(short)
        rows.append((name_of(short), format_number(figure.value), format_interval(figure),
                     "" if rounds is None else str(rounds)))  # fmt: skip
    stage, j = found[0].stage, _sieve_j(found[0])
    text = [
        f"{study.dataset.description} {study.describe_clients()}. Errors are mean squared "
        "differences from the true curve at fresh treatments, in units of the outcome's variance, "
        f"averaged over {len(found)} {'seed' if len(found) == 1 else 'seeds'}.",
        f"First-stage F {stage.f_statistic:.0f}.{j}",
    ]
    columns = ("Estimator", "Test MSE", "95 % interval", "Rounds")
    title = "What the same methods recover when the truth is known" if prefix else "Error"
    return Section(title, tuple(text), Table(columns, tuple(rows)))


def _sieve_j(found: CurveFindings) -> str:
    curve = found.curves.get("sieve")
    if curve is None or curve.estimate.j is None:
        return ""
    e = curve.estimate
    return (
        f" Hansen's J of the sieve: {e.j:.1f} on {e.j_df:.1f} degrees of freedom, p = {e.j_p:.3f}."
    )


def _curve_section(found: CurveFindings, run: Run) -> Section:
    truth = found.study.dataset.truth
    x = found.study.dataset.rows.x[:, 0]
    grid = np.linspace(float(np.quantile(x, 0.01)), float(np.quantile(x, 0.99)), 200)
    shown: list[Line] = []
    if truth is not None:
        fine = np.linspace(grid[0], grid[-1], 801)
        shown.append(Line("truth", fine, truth.function(fine), reference=True))
    for key, curve in found.curves.items():
        g, se = curve.predict(grid)
        shown.append(
            Line(name_of(key), grid, g, g - 1.96 * se, g + 1.96 * se, colour=COLOURS.get(key, ""))
        )
    for key in (*found.games, *(["neural"] if found.fit is not None else [])):
        g = found.predictions[key](grid)
        shown.append(Line(name_of(key), grid, g, colour=COLOURS.get(key, "")))
    direct = found.baselines["direct"](grid)
    shown.append(Line(name_of("direct"), grid, direct, colour=plots.GREY))
    names = found.study.dataset.names
    file = f"plots/curve-{found.study.name}.svg"
    plots.lines(run.artifact(file), shown, names.x[0], f"g({names.x[0]})")
    return Section(
        "The estimated curve",
        svg=file,
        caption="Bands are pointwise 95 % intervals from sandwich standard errors. They count "
        "noise, not the bias that smoothing adds, so they are too narrow at kinks and jumps.",
    )


def _rounds_section(found: CurveFindings, run: Run) -> Section:
    curves = []
    for key, trained in found.games.items():
        errors = np.array([h["mse"] for h in trained.history])
        steps = np.arange(1, len(errors) + 1)
        curves.append(Line(name_of(key), steps, errors, colour=COLOURS.get(key, "")))
    most = max(len(c.x) for c in curves)
    span = np.array([1.0, float(most)])
    for key in found.rounds:
        if key not in found.games:
            level = found.error(found.predictions[key])
            label = f"{name_of(key)} ({found.rounds[key]} rounds)"
            curves.append(Line(label, span, np.full(2, level), colour=COLOURS.get(key, "")))
    file = f"plots/rounds-{found.study.name}.svg"
    plots.lines(run.artifact(file), curves, "communication round", "test MSE / Var(y)", log=True)
    return Section(
        "Rounds against error",
        svg=file,
        caption="The game's error after each round. Level lines are estimators that need only "
        "the stated number of rounds.",
    )


def add_unknown_curve(result: Result, found: CurveFindings, run: Run) -> None:
    """Add the slope and the curve of a study on real data."""
    names = found.study.dataset.names
    mean, sd = found.scale.mean[1], found.scale.sd[1]
    ends = np.array([mean - sd, mean + sd])
    label = "mean slope within one standard deviation of the mean"
    for key, predict in found.predictions.items():
        low, high = predict(ends)
        result.figures[f"slope.{key}"] = Figure(
            float((high - low) / (2 * sd)), n=found.scale.n, label=f"{name_of(key)}: {label}"
        )
    for key, predict in found.baselines.items():
        low, high = predict(ends)
        result.baselines[f"slope.{key}"] = Figure(
            float((high - low) / (2 * sd)), n=found.scale.n, label=f"{name_of(key)}: {label}"
        )
    f = found.stage.f_statistic
    result.figures["first_stage_f"] = Figure(f, n=found.scale.n, label="first-stage F")
    result.headline += [f"slope.{next(iter(found.predictions))}", "first_stage_f"]
    if f < WEAK:
        result.warnings.append(
            f"Weak instruments: the first-stage F of {names.x[0]} is {f:.1f}, below {WEAK:.0f}; "
            "the curve is hardly identified."
        )
    if found.study.skewed_on_treatment:
        result.warnings.append(SKEW_ON_TREATMENT)
    section = _curve_section(found, run)
    text = (
        f"{found.study.dataset.description} {found.study.describe_clients()}.{_sieve_j(found)}",
    )
    result.sections.append(
        Section("The estimated curve", text, svg=section.svg, caption=section.caption)
    )
