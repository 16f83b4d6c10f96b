"""The estimators that need only sums over rows: each a short conversation with the clients.

`Clients` is all they see of the federation: who is there, and what each answers to a request. The
same code runs on Flower's grid and, in tests, on a plain list of rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from federated.fedgmm import control, linear, sieve
from federated.fedgmm.design import Array, Arrays, Design, Scale
from federated.fedgmm.linear import Estimate

POLYNOMIAL_DEGREE = 3

CONTROL_SMOOTHING = 1e-6
"""Penalty of the control function's g, in its well-posed regression."""


class Clients(Protocol):
    """The clients of one analysis, as the server sees them."""

    @property
    def labels(self) -> list[str]:
        """Names of the clients in their order."""
        ...

    def ask(
        self, statistic: str, arrays: Arrays, settings: Mapping[str, Any]
    ) -> list[dict[str, Array]]:
        """Return every client's answer, in the order of `labels`."""
        ...


def total(answers: list[dict[str, Array]]) -> dict[str, Array]:
    """Add up answers over clients, in their order."""
    return {key: np.sum([a[key] for a in answers], axis=0) for key in answers[0]}


@dataclass(frozen=True)
class Sums:
    """The summed moments of one design, and each client's own."""

    design: Design
    total: Arrays
    each: list[dict[str, Array]] = field(repr=False)


@dataclass(frozen=True)
class Curve:
    """An estimated g: the design of its columns, its coefficients, and a constant to add.

    `level` moves g so that the omitted part of the model (the control function) has mean zero.
    """

    design: Design
    estimate: Estimate
    level: float = 0.0

    def predict(self, x: Array) -> tuple[Array, Array]:
        """g and its standard error at x (n,), both in the units of y."""
        columns = self.design.curve_columns(x)
        mean, sd = self.design.scale.mean[0], self.design.scale.sd[0]
        variance = np.einsum("ij,jk,ik->i", columns, self.estimate.covariance, columns)
        g = columns @ self.estimate.theta + self.level
        return g * sd + mean, np.sqrt(np.maximum(variance, 0.0)) * sd


def federated_scale(clients: Clients, treatments: int, instruments: int) -> Scale:
    """Means and standard deviations of all columns, from sums (two rounds).

    Constant columns get the standard deviation 1: they are collinear with the intercept and drop
    out of the estimators.
    """
    counted = total(clients.ask("count", {}, {}))
    n = int(counted["n"][0])
    mean = counted["total"] / n
    squares = total(clients.ask("spread", {"mean": mean}, {}))["squares"]
    sd = np.sqrt(squares / n)
    sd = np.where(sd > 1e-12 * np.maximum(np.abs(mean), 1.0), sd, 1.0)
    return Scale(n, mean, sd, treatments, instruments)


def moment_sums(clients: Clients, design: Design) -> Sums:
    """Ask for the second moments of a design (one round)."""
    each = clients.ask("moments", *design.pack())
    return Sums(design, total(each), each)


def score_covariance(clients: Clients, sums: Sums, theta: Array) -> Arrays:
    """Ask for the weights of the second GMM step at `theta` (one round)."""
    arrays, settings = sums.design.pack()
    return total(clients.ask("score_covariance", {**arrays, "theta": theta}, settings))


def two_step(clients: Clients, sums: Sums, penalty: Array | None = None) -> Estimate:
    """Two-step GMM, penalised or not, from moments that are already here (one more round)."""
    if penalty is None:
        first = linear.two_stage(sums.total)
        return linear.gmm(sums.total, score_covariance(clients, sums, first.theta))
    first = sieve.sieve_gmm(sums.total, penalty)
    omega = score_covariance(clients, sums, first.theta)
    return sieve.sieve_gmm(sums.total, penalty, omega)


@dataclass(frozen=True)
class FirstStage:
    """The fitted E[x | z, w] and what later designs need of it."""

    sums: Sums
    f_statistic: float
    design: Design


def first_stage(clients: Clients, scale: Scale, size: int, index_size: int) -> FirstStage:
    """Fit x on splines of the instruments (one round) and prepare the sieve design."""
    sums = moment_sums(clients, Design("first_stage", scale))
    bb, by, n = sums.total["bb"], sums.total["by"], float(sums.total["n"][0])
    theta = linear.inverse(bb, linear.SPLINE_ZERO) @ by
    rss = float(sums.total["yy"][0] - by @ theta)
    excluded = len(bb) - scale.controls
    included = np.r_[0, excluded : len(bb)]
    short = float(
        sums.total["yy"][0]
        - by[included] @ linear.inverse(bb[np.ix_(included, included)]) @ by[included]
    )
    used = linear.rank(bb, linear.SPLINE_ZERO) - len(included)
    df = n - linear.rank(bb, linear.SPLINE_ZERO)
    mean = float(bb[0, :excluded] @ theta[:excluded] / n)
    square = float(theta[:excluded] @ bb[:excluded, :excluded] @ theta[:excluded] / n)
    design = Design(
        "sieve", scale, size, index_size, theta, mean,
        float(np.sqrt(max(square - mean**2, 1e-12))), float(np.sqrt(max(rss / n, 1e-12))),
    )  # fmt: skip
    return FirstStage(sums, (short - rss) / max(used, 1) / (rss / df), design)


def sieve_curve(clients: Clients, stage: FirstStage, sums: Sums, smoothing: float) -> Curve:
    """Penalised two-step sieve GMM for g from the moments of the sieve design (one round)."""
    penalty = sieve.curve_penalty(stage.design.size, stage.design.scale.controls, smoothing)
    return Curve(stage.design, two_step(clients, sums, penalty))


def direct_curve(sums: Sums, smoothing: float) -> Curve:
    """Penalised regression on the sieve's own columns: what ignoring endogeneity would give."""
    penalty = sieve.curve_penalty(sums.design.size, sums.design.scale.controls, smoothing)
    return Curve(sums.design, sieve.penalised_regression(sums.total, penalty))


def polynomial_curve(clients: Clients, scale: Scale) -> Curve:
    """Polynomial 2SLS, the usual parametric choice (one round)."""
    sums = moment_sums(clients, Design("polynomial", scale, POLYNOMIAL_DEGREE))
    return Curve(sums.design, linear.two_stage(sums.total))


def control_curve(clients: Clients, stage: FirstStage) -> Curve:
    """Control-function estimate of g with two-stage standard errors (two rounds)."""
    design = replace(stage.design, kind="control")
    sums = moment_sums(clients, design)
    others = design.index_size - 1 + design.scale.controls
    penalty = sieve.curve_penalty(design.size, others, CONTROL_SMOOTHING)
    theta = control.coefficients(sums.total, penalty)
    arrays, settings = design.pack()
    scores = total(clients.ask("control_scores", {**arrays, "theta": theta}, settings))
    estimate = control.two_stage_estimate(sums.total, stage.sums.total, scores, penalty, theta)
    # A's first columns add up to one, so their rows of A'A sum to the totals of all columns.
    means = sums.total["aa"][: design.size].sum(axis=0) / float(sums.total["n"][0])
    return Curve(design, estimate, control.centred_level(design, theta, means))
