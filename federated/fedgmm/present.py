"""From findings to evidence: figures over seeds, sections of the report, plots."""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from cluster import plots
from cluster.evidence import Figure, Result, Section, Table
from cluster.plots import Interval, Line
from cluster.report import format_figure, format_interval, format_number
from cluster.run import Run
from federated.fedgmm.analyse import CurveFindings, Findings, LinearFindings, mean_of
from federated.fedgmm.config import Config
from federated.fedgmm.linear import Coefficient

WEAK = 10.0
"""First-stage F below which instruments count as weak (Staiger and Stock, 1997)."""

NAMES = {
    "2sls": "federated 2SLS",
    "gmm": "federated two-step GMM",
    "sieve": "federated sieve GMM",
    "control": "federated control function",
    "neural": "neural g, closed-form critic",
    "polynomial": "federated polynomial 2SLS",
    "fedgda": "FedGDA (full batch)",
    "fedsgda": "FedSGDA (minibatch)",
    "fedoadam": "FedSGDA with optimistic Adam",
    "ols": "OLS (ignores endogeneity)",
    "direct": "direct regression (ignores endogeneity)",
    "pooled_2sls": "pooled 2SLS",
    "pooled_polynomial_2sls": "pooled polynomial 2SLS",
    "average_of_local_2sls": "average of local 2SLS",
    "average_of_local": "average of local sieves",
    "local": "one client alone (mean over clients)",
}

SKEW_ON_TREATMENT = (
    "Clients differ by the treatment x, which is endogenous. Within a client the moment "
    "E[f(z) eps] is then no longer zero, only over all clients together. Methods that take steps "
    "on local moments (FedGDA, FedSGDA, local 2SLS) are biased here by construction; estimates "
    "from summed moments are not."
)


def name_of(key: str) -> str:
    """What a person calls an estimator."""
    return NAMES.get(key, key)


def over_seeds(values: Sequence[float], label: str, unit: str = "Var(y)") -> Figure:
    """Mean over seeds with its 95 % Student interval; none for a single seed."""
    data = np.asarray(values, dtype=float)
    mean = float(data.mean())
    if len(data) < 2:
        return Figure(mean, n=len(data), unit=unit, label=label, better="lower")
    half = float(stats.t.ppf(0.975, len(data) - 1) * data.std(ddof=1) / np.sqrt(len(data)))
    return Figure(mean, mean - half, mean + half, len(data), unit, label, "lower")


def present(config: Config, findings: Sequence[Findings], run: Run) -> Result:
    """Build the result of a run from the findings of its studies."""
    linear = [f for f in findings if isinstance(f, LinearFindings)]
    curves = [f for f in findings if isinstance(f, CurveFindings)]
    result = Result({}, {}, list(config.seeds))
    if linear:
        _add_linear(result, linear[0], run)
    known = [f for f in curves if f.study.dataset.truth is not None]
    if known:
        _add_known_curves(result, known, run, prefix="check." if linear else "")
    for f in curves:
        if f.study.dataset.truth is None:
            _add_unknown_curve(result, f, run)
            break  # one plot; other seeds only deal the same rows differently
    result.summary = _summary(result, linear, known)
    result.headline = result.headline[:6]
    return result


# --- a coefficient a treatment ---------------------------------------------------------------


def _add_linear(result: Result, found: LinearFindings, run: Run) -> None:
    names = found.study.dataset.names
    n = found.scale.n
    for i, treatment in enumerate(names.x):
        for key, values in found.estimates.items():
            name = f"{treatment}.{key}"
            result.figures[name] = _coefficient(values[i], n, f"{treatment}: {name_of(key)}")
        for key, values in found.baselines.items():
            if i < len(values):
                result.baselines[f"{treatment}.{key}"] = _coefficient(
                    values[i], n, f"{treatment}: {name_of(key)}"
                )
        for key, trained in found.games.items():
            result.figures[f"{treatment}.{key}"] = Figure(
                trained[i], n=n, label=f"{treatment}: {name_of(key)}"
            )
        result.figures[f"first_stage_f.{treatment}"] = Figure(
            found.first_stage_f[i], n=n, label=f"first-stage F of {treatment}", better="higher"
        )
        result.headline += [f"{treatment}.2sls", f"first_stage_f.{treatment}"]
    if found.anderson_rubin is not None:
        low, high = found.anderson_rubin
        if np.isnan(low):
            result.warnings.append(
                "The Anderson-Rubin set is empty: no effect size agrees with all instruments, so "
                "they cannot all be valid."
            )
        result.figures["anderson_rubin"] = Figure(
            found.estimates["2sls"][0].value,
            low if np.isfinite(low) else None,
            high if np.isfinite(high) else None,
            n,
            label=f"{names.x[0]}: Anderson-Rubin interval (holds with weak instruments)",
        )
    if found.j is not None:
        result.figures["j_p"] = Figure(found.j[2], n=n, label="Hansen's J test, p-value")
        result.headline.append("j_p")
    _linear_warnings(result, found)
    result.sections += [_linear_section(result, found), _forest_section(found, run)]


def _coefficient(c: Coefficient, n: int, label: str) -> Figure:
    low, high = c.interval()
    return Figure(c.value, low, high, n, label=label)


def _linear_warnings(result: Result, found: LinearFindings) -> None:
    names = found.study.dataset.names
    result.warnings += found.study.dataset.warnings
    for treatment, f in zip(names.x, found.first_stage_f, strict=True):
        if f < WEAK:
            result.warnings.append(
                f"Weak instruments: the first-stage F of {treatment} is {f:.1f}, below {WEAK:.0f}. "
                "2SLS is then biased towards OLS and its interval too short; read the "
                "Anderson-Rubin interval instead."
            )
    absent = sum(c is None for c in found.local)
    if absent:
        result.warnings.append(
            f"{absent} of {len(found.local)} clients cannot estimate the effect from their own "
            "rows: too few, or no instrument that moves the treatment there. Their rows still "
            "count in the federated estimate."
        )
    if found.study.skewed_on_treatment:
        result.warnings.append(SKEW_ON_TREATMENT)


def _linear_section(result: Result, found: LinearFindings) -> Section:
    data = found.study.dataset
    rows = [
        (figure.label, format_figure(figure), format_interval(figure))
        for name, figure in (*result.baselines.items(), *result.figures.items())
        if name.split(".")[0] in data.names.x or name == "anderson_rubin"
    ]
    text = [
        f"{data.description} {found.study.describe_clients()}.",
        f"Federated 2SLS took {found.rounds['2sls']} round of sums after the two that "
        f"standardise the columns, two-step GMM {found.rounds['gmm']}. They equal the pooled "
        "estimates because those depend on the rows only through sums.",
    ]
    if found.j is None:
        text.append(
            "Hansen's J test is not available: there are as many instruments as treatments, so "
            "nothing is left over to test."
        )
    else:
        text.append(
            f"Hansen's J test of over-identification: J = {found.j[0]:.2f} on "
            f"{found.j[1]:.0f} degrees of freedom, p = {found.j[2]:.3f}."
        )
    table = Table(("Estimate", "Value", "95 % interval"), tuple(rows))
    return Section(f"Effect on {data.names.y}", tuple(text), table)


def _forest_section(found: LinearFindings, run: Run) -> Section:
    treatment = found.study.dataset.names.x[0]
    rows = [
        Interval(f"{label} (n = {size})", c.value, *c.interval())
        for label, size, c in zip(found.study.labels, found.local_rows, found.local, strict=True)
        if c is not None
    ]
    for key, values in (*found.baselines.items(), *found.estimates.items()):
        c = values[0]
        rows.append(Interval(name_of(key), c.value, *c.interval(), key in found.estimates))
    pooled = found.estimates["2sls"][0]
    spread = max(4 * pooled.se, *(1.4 * abs(r.value - pooled.value) for r in rows))
    plots.forest(
        run.artifact("plots/forest.svg"),
        rows,
        f"effect of {treatment} on {found.study.dataset.names.y}",
        reference=0.0,
        xlim=(pooled.value - spread, pooled.value + spread),
    )
    return Section(
        "Each client alone, and all together",
        ("Each client's own 2SLS estimate with its 95 % interval. Long intervals run out of the "
         "picture. Averaging such estimates gives weight to clients that know little; summing "
         "moments lets every row count once.",),
        svg="plots/forest.svg",
        caption=f"Estimates of the effect of {treatment}; diamonds are the federated ones.",
    )  # fmt: skip


# --- a curve ------------------------------------------------------------------------------------


def _add_known_curves(
    result: Result, found: Sequence[CurveFindings], run: Run, prefix: str
) -> None:
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
        shown.append(Line(name_of(key), grid, g, g - 1.96 * se, g + 1.96 * se))
    for key in (*found.games, *(["neural"] if found.fit is not None else [])):
        shown.append(Line(name_of(key), grid, found.predictions[key](grid)))
    shown.append(Line(name_of("direct"), grid, found.baselines["direct"](grid)))
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
        curves.append(Line(name_of(key), np.arange(1, len(errors) + 1), errors))
    most = max(len(c.x) for c in curves)
    span = np.array([1.0, float(most)])
    for key in found.rounds:
        if key not in found.games:
            level = found.error(found.predictions[key])
            label = f"{name_of(key)} ({found.rounds[key]} rounds)"
            curves.append(Line(label, span, np.full(2, level)))
    file = f"plots/rounds-{found.study.name}.svg"
    plots.lines(run.artifact(file), curves, "communication round", "test MSE / Var(y)", log=True)
    return Section(
        "Rounds against error",
        svg=file,
        caption="The game's error after each round. Level lines are estimators that need only "
        "the stated number of rounds.",
    )


def _add_unknown_curve(result: Result, found: CurveFindings, run: Run) -> None:
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


def _summary(
    result: Result, linear: Sequence[LinearFindings], known: Sequence[CurveFindings]
) -> str:
    if linear:
        found = linear[0]
        names = found.study.dataset.names
        c = found.estimates["2sls"][0]
        low, high = c.interval()
        return (
            f"One more unit of {names.x[0]} changes {names.y} by {format_number(c.value)} "
            f"({format_number(low)} to {format_number(high)}), estimated on "
            f"{len(found.study.parts)} clients without moving a row"
        )
    if known:
        best = min(result.figures.items(), key=lambda kv: kv[1].value)
        return f"Best federated estimate of g: {best[1].label} {format_number(best[1].value)}"
    return "A causal curve estimated on clients that keep their rows"
