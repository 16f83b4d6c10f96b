"""The report's part on coefficients: table, weak-instrument warnings, forest plot."""

import numpy as np

from cluster import plots
from cluster.evidence import Figure, Result, Section, Table
from cluster.plots import Interval
from cluster.report import format_figure, format_interval, format_number
from cluster.run import Run
from federated.fedgmm.analyse import LinearFindings
from federated.fedgmm.linear import Coefficient
from federated.fedgmm.words import SKEW_ON_TREATMENT, WEAK, name_of


def add_linear(result: Result, found: LinearFindings, run: Run) -> None:
    """Add coefficients with intervals, tests, warnings and the forest plot."""
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
    for label, size, c in zip(found.study.labels, found.local_rows, found.local, strict=True):
        own = None if c is None else _coefficient(c, size, "")
        value = "not identified" if own is None else format_figure(own)
        interval = "" if own is None else format_interval(own)
        rows.append((f"{data.names.x[0]}: {label} alone (n = {size})", value, interval))
    p = "just identified, nothing to test" if found.j is None else format_number(found.j[2])
    rows.append(("Hansen's J test, p-value", p, ""))
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
