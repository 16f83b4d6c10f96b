"""From findings to evidence: figures over seeds, sections of the report, plots."""

from collections.abc import Sequence

from cluster.evidence import Result
from cluster.report import format_number
from cluster.run import Run
from federated.fedgmm.analyse import CurveFindings, Findings, LinearFindings
from federated.fedgmm.config import Config
from federated.fedgmm.present_curve import add_known_curves, add_unknown_curve
from federated.fedgmm.present_linear import add_linear
from federated.fedgmm.private.analyse import PrivateFindings
from federated.fedgmm.private.present import present_private

Found = Findings | PrivateFindings
"""What was found in one study."""


def present(config: Config, findings: Sequence[Found], run: Run) -> Result:
    """Build the result of a run from the findings of its studies."""
    private = [f for f in findings if isinstance(f, PrivateFindings)]
    if private:
        return present_private(config, private, run)
    linear = [f for f in findings if isinstance(f, LinearFindings)]
    curves = [f for f in findings if isinstance(f, CurveFindings)]
    result = Result({}, {}, list(config.seeds))
    if linear:
        add_linear(result, linear[0], run)
    known = [f for f in curves if f.study.dataset.truth is not None]
    if known:
        add_known_curves(result, known, run, prefix="check." if linear else "")
    for f in curves:
        if f.study.dataset.truth is None:
            add_unknown_curve(result, f, run)
            break  # one plot; other seeds only deal the same rows differently
    result.summary = _summary(result, linear, known)
    result.headline = result.headline[:6]
    return result


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
