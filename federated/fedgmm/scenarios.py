"""The synthetic processes of arXiv 2505.21012, as its text and as its authors' code state them.

Both draw Z ~ U[-3, 3]^2, e ~ N(0, 1) and gamma, delta ~ N(0, 0.1^2), and hide e from the analyst:

===== ======================== ========================= =========================
name  treatment                outcome                   step function
===== ======================== ========================= =========================
paper X = Z1 + Z2 + e + gamma  Y = g0(X) + e + delta     0 below zero, 1 from zero
code  X = Z1 + e + gamma       Y = g0(X) + 2 e + delta   1 below zero, 2.5 from zero
===== ======================== ========================= =========================

In the code's process Z2 is an irrelevant instrument, and the paper's tables were made with it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Literal, get_args

import numpy as np

from cluster.errors import UsageError
from federated.fedgmm.rows import Dataset, Floats, Names, Rows, Truth
from federated.streams import stream

Scenario = Literal["abs", "step", "linear", "sin"]
Process = Literal["paper", "code"]

NOISE = 0.1  # standard deviation of gamma and delta


@dataclass(frozen=True)
class _Form:
    """How one process weighs its parts."""

    second_instrument: float  # weight of Z2 in X
    confounding: float  # weight of e in Y
    step: tuple[float, float]  # values of the step function below and from zero
    formula: str


_FORMS: Mapping[str, _Form] = {
    "paper": _Form(1.0, 1.0, (0.0, 1.0), "X = Z1 + Z2 + e + gamma, Y = g0(X) + e + delta"),
    "code": _Form(0.0, 2.0, (1.0, 2.5), "X = Z1 + e + gamma, Y = g0(X) + 2e + delta"),
}


def structural(scenario: str, process: str) -> Callable[[Floats], Floats]:
    """Return g0, a function of treatments of any shape; it can be pickled.

    Raises UsageError for an unknown scenario or process, with the nearest name.
    """
    _check("scenario", scenario, get_args(Scenario))
    _check("process", process, get_args(Process))
    low, high = _FORMS[process].step
    functions: dict[str, Callable[[Floats], Floats]] = {
        "abs": np.abs,
        "step": partial(_step, low=low, high=high),
        "linear": np.positive,
        "sin": np.sin,
    }
    return functions[scenario]


def draw(scenario: str, process: str, rows: int, seed: int) -> Dataset:
    """Draw a data set of `rows` rows and as many independent test treatments.

    Rows and test treatments come from the streams ("train",) and ("test",) of `seed`
    (`federated.streams`); whatever else is random takes its own stream. Scenarios of one
    seed and process share X and differ in Y alone.

    Raises
    ------
    UsageError
        For an unknown scenario or process (with the nearest name) or fewer than one row.
    """
    g0 = structural(scenario, process)
    if rows < 1:
        raise UsageError(f"A synthetic data set needs at least one row, got rows = {rows}.")
    form = _FORMS[process]
    rng = stream(seed, "train")
    x, z, hidden = _treatments(form, rows, rng)
    y = g0(x) + form.confounding * hidden + rng.normal(0.0, NOISE, rows)
    test_x, _, _ = _treatments(form, rows, stream(seed, "test"))
    return Dataset(
        rows=Rows(y=y, x=x[:, None], z=z, w=np.empty((rows, 0))),
        names=Names(y="y", x=("x",), z=("z1", "z2")),
        client=None,
        truth=Truth(scenario, g0, test_x),
        description=f"Synthetic: g0 = {scenario}, {form.formula}, {rows} rows, seed {seed}.",
    )


def _treatments(form: _Form, n: int, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """Return X of shape (n,), Z of shape (n, 2) and the hidden e of shape (n,)."""
    z = rng.uniform(-3.0, 3.0, (n, 2))
    hidden = rng.normal(0.0, 1.0, n)
    x = z[:, 0] + form.second_instrument * z[:, 1] + hidden + rng.normal(0.0, NOISE, n)
    return x, z, hidden


def _step(x: Floats, *, low: float, high: float) -> Floats:
    return np.where(x >= 0.0, high, low)


def _check(what: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}."
        raise UsageError(f"There is no {what} '{name}'; {hint}")
