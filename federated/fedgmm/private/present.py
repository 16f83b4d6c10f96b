"""The report of a private analysis: the estimate, what the budget bought, what is not protected."""

from collections.abc import Sequence

import numpy as np

from cluster import plots
from cluster.evidence import Figure, Result, Section, Table
from cluster.plots import Line
from cluster.report import format_figure, format_interval, format_number
from cluster.run import Run
from federated.fedgmm.analyse import Predict
from federated.fedgmm.config import Config
from federated.fedgmm.linear import Z_95, Coefficient
from federated.fedgmm.private.analyse import PrivateFindings
from federated.fedgmm.private.baselines import curve_baselines, linear_baselines
from federated.fedgmm.private.budget import budget_section, protection_section
from federated.fedgmm.private.design import scaled, splines
from federated.fedgmm.private.fit import PrivateCurve, PrivateLinear
from federated.fedgmm.words import COLOURS, SKEW_ON_TREATMENT, name_of, over_seeds


def left_out(config: Config) -> str:
    """One line on what a private analysis does not do, and why."""
    names = ", ".join([*config.estimators, *config.games])
    return (
        "privacy: the analysis is one private release; left out, since the budget does not cover "
        f"them: {names or 'nothing'}"
    )


def present_private(config: Config, found: Sequence[PrivateFindings], run: Run) -> Result:
    """Build the result of a private run."""
    result = Result({}, {}, list(config.seeds))
    linear = [f for f in found if isinstance(f.estimate, PrivateLinear)]
    curves = [f for f in found if isinstance(f.estimate, PrivateCurve)]
    known = [f for f in curves if f.study.dataset.truth is not None]
    unknown = [f for f in curves if f.study.dataset.truth is None]
    if linear:
        _add_linear(result, linear[0], config)
    if unknown:
        _add_unknown_curve(result, unknown[0], config, run)
    if known:
        _add_known_curves(result, known, config, run, "check." if linear or unknown else "")
    kept = [*linear[:1], *unknown[:1], *known]
    result.sections += [budget_section(kept), protection_section(config, kept)]
    for f in kept:
        result.warnings += _warnings(f)
    result.warnings = list(dict.fromkeys(result.warnings))
    if config.privacy is not None:
        result.summary = _summary(result, config.privacy.epsilon, config.privacy.delta)
    return result


def is_public(found: PrivateFindings, config: Config) -> bool:
    """Whether the rows are synthetic or published, so that anything may be said about them."""
    return found.study.dataset.truth is not None or config.data.source != "file"


def _add_linear(result: Result, found: PrivateFindings, config: Config) -> None:
    assert isinstance(found.estimate, PrivateLinear)
    names, n = found.study.dataset.names, found.released.n
    beside = linear_baselines(found) if is_public(found, config) else {}
    values = found.estimate.coefficients()
    for i, treatment in enumerate(names.x):
        key = f"{treatment}.private"
        result.figures[key] = _coefficient(values[i], n, f"{treatment}: {name_of('private')}")
        result.headline.append(key)
        for other, them in beside.items():
            label = f"{treatment}: {name_of(other)}"
            result.baselines[f"{treatment}.{other}"] = _coefficient(them[i], n, label)
    rows = [
        (f.label, format_figure(f), format_interval(f))
        for f in (*result.figures.values(), *result.baselines.values())
    ]
    text = (
        f"{found.study.dataset.description} {found.study.describe_clients()}. The interval of the "
        "private estimate counts the noise as well as sampling.",
    )
    table = Table(("Estimate", "Value", "95 % interval"), tuple(rows))
    result.sections.append(Section(f"Effect on {names.y}", text, table))


def _coefficient(c: Coefficient, n: int, label: str) -> Figure:
    low, high = c.interval()
    if np.isnan(c.se):
        return Figure(c.value, n=n, label=label)
    return Figure(c.value, low, high, n, label=label)


def _add_known_curves(
    result: Result, found: Sequence[PrivateFindings], config: Config, run: Run, prefix: str
) -> None:
    truth = found[0].study.dataset.truth
    assert truth is not None
    beside = [curve_baselines(f, config.curve) for f in found]
    errors = [f.error(_curve(f)(_test_x(f))) for f in found]
    label = f"{truth.g0}: {name_of('private')}, test MSE"
    result.figures[f"{prefix}mse.private"] = over_seeds(errors, label)
    result.headline.append(f"{prefix}mse.private")
    for key in beside[0]:
        values = [f.error(b[key](_test_x(f))) for f, b in zip(found, beside, strict=True)]
        label = f"{truth.g0}: {_without_privacy(key)}, test MSE"
        result.baselines[f"{prefix}mse.{key}"] = over_seeds(values, label)
    mine = [(k, v) for k, v in result.figures.items() if k.startswith(f"{prefix}mse.")]
    base = [(k, v) for k, v in result.baselines.items() if k.startswith(f"{prefix}mse.")]
    rows = [
        (figure.label.split(": ")[1].removesuffix(", test MSE"), format_number(figure.value),
         format_interval(figure))
        for _, figure in sorted([*mine, *base], key=lambda kv: kv[1].value)
    ]  # fmt: skip
    text = (
        f"{found[0].study.dataset.description} {found[0].study.describe_clients()}. Errors are "
        "mean squared differences from the true curve at fresh treatments, in units of the "
        f"outcome's variance, averaged over {len(found)} "
        f"{'seed' if len(found) == 1 else 'seeds'}.",
    )
    table = Table(("Estimator", "Test MSE", "95 % interval"), tuple(rows))
    title = "What the private method recovers when the truth is known" if prefix else "Error"
    result.sections += [Section(title, text, table), _curve_section(found[0], beside[0], run)]


def _add_unknown_curve(result: Result, found: PrivateFindings, config: Config, run: Run) -> None:
    low, high = found.design.x[0]
    ends = np.array([low + (high - low) / 4, high - (high - low) / 4])
    slope, se = _slope(found, ends)
    label = "mean slope over the middle half of the treatment's bounds"
    n = found.released.n
    figure = _coefficient(Coefficient(slope, se), n, f"{name_of('private')}: {label}")
    result.figures["slope.private"] = figure
    result.headline.append("slope.private")
    beside = curve_baselines(found, config.curve) if is_public(found, config) else {}
    for key, predict in beside.items():
        first, last = predict(ends)
        result.baselines[f"slope.{key}"] = Figure(
            float((last - first) / (ends[1] - ends[0])), n=n,
            label=f"{_without_privacy(key)}: {label}",
        )  # fmt: skip
    section = _curve_section(found, beside, run)
    text = (f"{found.study.dataset.description} {found.study.describe_clients()}.",)
    result.sections.append(Section(section.title, text, svg=section.svg, caption=section.caption))


def _slope(found: PrivateFindings, ends: np.ndarray) -> tuple[float, float]:
    """Mean slope of the private curve between two treatments, with its standard error."""
    assert isinstance(found.estimate, PrivateCurve)
    design, estimate = found.design, found.estimate.estimate
    first, last = splines(scaled(ends, design.x[0]), design.size)
    step = (last - first) / (ends[1] - ends[0]) * (design.y[1] - design.y[0]) / 2
    variance = step @ estimate.covariance[: design.size, : design.size] @ step
    return float(step @ estimate.theta[: design.size]), float(np.sqrt(max(variance, 0.0)))


def _curve_section(found: PrivateFindings, beside: dict[str, Predict], run: Run) -> Section:
    """The private curve over the public bounds of x; quantiles of the rows would be a release."""
    assert isinstance(found.estimate, PrivateCurve)
    truth, names = found.study.dataset.truth, found.study.dataset.names
    grid = np.linspace(*found.design.x[0], 401)
    shown: list[Line] = []
    if truth is not None:
        shown.append(Line("truth", grid, truth.function(grid), reference=True))
    g, se = found.estimate.predict(grid)
    shown.append(Line(name_of("private"), grid, g, g - Z_95 * se, g + Z_95 * se))
    if "without_noise" in beside:
        plain = beside["without_noise"](grid)
        shown.append(Line(name_of("without_noise"), grid, plain, colour=COLOURS["control"]))
        shown.append(Line(name_of("direct"), grid, beside["direct"](grid), colour=plots.GREY))
    file = f"plots/private-{found.study.name}.svg"
    plots.lines(run.artifact(file), shown, names.x[0], f"g({names.x[0]})")
    return Section(
        "The private curve",
        svg=file,
        caption="The band is a pointwise 95 % interval that counts sampling, the noise of "
        "privacy and the width of the prior, not the bias of the ridge that keeps the noise from "
        "being inverted; towards the bounds, where there are few rows, the prior rules.",
    )


def _curve(found: PrivateFindings) -> Predict:
    estimate = found.estimate
    assert isinstance(estimate, PrivateCurve)
    return lambda x: estimate.predict(x)[0]


def _test_x(found: PrivateFindings) -> np.ndarray:
    truth = found.study.dataset.truth
    assert truth is not None
    return np.asarray(truth.test_x)


def _without_privacy(key: str) -> str:
    """Name of a baseline; the sieve is federated elsewhere, here it is the one without noise."""
    return "sieve GMM without privacy" if key == "sieve" else name_of(key)


def _warnings(found: PrivateFindings) -> list[str]:
    said = []
    released, everyone = found.released, len(found.study.parts)
    if len(released.members) < everyone:
        labels = {m.partition for m in released.members}
        gone = [name for i, name in enumerate(found.study.labels) if i not in labels]
        said.append(f"{found.study.name}: the estimate is without {', '.join(gone)}.")
    if released.rounds > 1 and np.isfinite(released.ledger.epsilon):
        said.append(
            f"{found.study.name}: it took {released.rounds} rounds of masks. Should a missing "
            "client's answer reach the server after all, every round counts, and epsilon is "
            f"{format_number(released.worst_epsilon)}."
        )
    if found.study.skewed_on_treatment:
        said.append(SKEW_ON_TREATMENT + " The private estimate is one of those.")
    return said


def _summary(result: Result, epsilon: float, delta: float) -> str:
    key = result.headline[0]
    promise = (
        f"({format_number(epsilon)}, {delta:g})-differentially private"
        if np.isfinite(epsilon)
        else "under masks, without noise"
    )
    return f"{result.figures[key].label} {format_number(result.figures[key].value)}, {promise}"
