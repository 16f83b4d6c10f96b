"""A neural g against the closed-form sieve critic: Gauss-Newton on summed moments.

For a critic that is linear in known instruments B(z), the inner maximum of eq. 14 is closed, and
the game becomes the GMM criterion psi' W psi with psi(theta) = mean B(z) (y - g(x; theta)). psi and
its Jacobian are sums over rows, so one round gives the server everything that a Levenberg-Marquardt
step needs, and the path of theta does not depend on who holds which row.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch.func import grad, vmap

from federated.fedgmm.design import Array, Arrays, Design
from federated.fedgmm.linear import SPLINE_ZERO, inverse, rank
from federated.fedgmm.networks import Network
from federated.fedgmm.rows import Rows

DECAY = 1e-4
"""Weight decay, in the units of the criterion: keeps the network as smooth as the data allow."""

STARTS = 4
"""Initial networks tried, while the J test still rejects the fit as a poor local minimum."""

REJECTED = 1e-3

STEPS = 25
"""Accepted or rejected steps in each of the two GMM stages."""

FIRST_DAMPING = 1e-2


def moments(rows: Rows, arrays: Arrays, settings: Mapping[str, Any]) -> dict[str, Array]:
    """A client's sums of B e (m,), of B dg/dtheta (m, P), of e^2, and of B B' e^2 (m, m)."""
    design = Design.unpack(arrays, settings)
    network = Network(tuple(settings["widths"]))
    theta = torch.from_numpy(np.array(arrays["theta"]))
    inputs = torch.from_numpy(network_inputs(design, rows))
    y, _, b = design.columns(rows)
    with torch.no_grad():
        error = y - network(theta, inputs).numpy()

    def output(parameters: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        return network(parameters, row[None])[0]

    slopes = vmap(grad(output), in_dims=(None, 0))(theta, inputs).numpy()
    scores = b * error[:, None]
    return {
        "moment": scores.sum(axis=0),
        "jacobian": b.T @ slopes,
        "ee": np.array([error @ error]),
        "omega": scores.T @ scores,
    }


def network_inputs(design: Design, rows: Rows) -> Array:
    """Standardised treatments and controls, (n, p + c)."""
    standardised = design.scale.apply(rows)
    return np.column_stack([standardised.x, standardised.w])


@dataclass(frozen=True)
class Fit:
    """A fitted network: parameters, Hansen's J over its moments, criterion after each round.

    `j_p` takes all moments as degrees of freedom, since a small network uses an unknown share of
    them: it understates a rejection, never overstates it.
    """

    theta: Array
    j: float
    moments: int
    criterion: tuple[float, ...]

    @property
    def j_p(self) -> float:
        """p-value of J."""
        return float(stats.chi2.sf(self.j, self.moments))


def fit(
    ask: Callable[[str, Arrays, Mapping[str, Any]], Arrays],
    design: Design,
    instruments: Array,
    network: Network,
    seed: int,
) -> Fit:
    """Two-step GMM for a network, one federated sum a step, from up to `STARTS` initial networks.

    The criterion is not convex; a fit whose moments are still violated is a local minimum, and the
    next start is tried. The start with the smallest J is returned.

    Parameters
    ----------
    ask : sums the statistic of that name over all clients.
    design : of kind "sieve"; its B are the instruments.
    instruments : sum of B B', (m, m), for the weights of the first stage.
    network : g; its inputs are the treatments and controls.
    seed : of the initial parameters.
    """
    best: Fit | None = None
    for start in range(STARTS):
        found = _fit_from(ask, design, instruments, network, network.init(seed + 1000 * start))
        if best is None or found.j < best.j:
            best = found
        if best.j_p > REJECTED:
            break
    assert best is not None
    return best


def _fit_from(
    ask: Callable[[str, Arrays, Mapping[str, Any]], Arrays],
    design: Design,
    instruments: Array,
    network: Network,
    initial: torch.Tensor,
) -> Fit:
    arrays, settings = design.pack()
    settings = {**settings, "widths": list(network.widths)}
    n = design.scale.n
    theta = initial.numpy()
    weights = inverse(instruments / n, SPLINE_ZERO)
    history: list[float] = []

    def sums_at(parameters: Array) -> Arrays:
        return ask("neural_moments", {**arrays, "theta": parameters}, settings)

    sums = sums_at(theta)
    for _ in range(2):
        theta, sums = _levenberg_marquardt(theta, sums, weights, n, sums_at, history)
        # Scaled by the residual variance, so that DECAY means the same in both stages.
        weights = inverse(sums["omega"] / n, SPLINE_ZERO) * float(sums["ee"][0]) / n
    mean = sums["moment"] / n
    j = float(n * mean @ inverse(sums["omega"] / n, SPLINE_ZERO) @ mean)
    return Fit(theta, j, rank(sums["omega"], SPLINE_ZERO), tuple(history))


def _levenberg_marquardt(
    theta: Array,
    sums: Arrays,
    weights: Array,
    n: int,
    sums_at: Callable[[Array], Arrays],
    history: list[float],
) -> tuple[Array, Arrays]:
    def criterion(parameters: Array, found: Arrays) -> float:
        mean = found["moment"] / n
        return float(mean @ weights @ mean + DECAY * parameters @ parameters)

    damping, value = FIRST_DAMPING, criterion(theta, sums)
    for _ in range(STEPS):
        jacobian, mean = -sums["jacobian"] / n, sums["moment"] / n
        gradient = jacobian.T @ weights @ mean + DECAY * theta
        curvature = jacobian.T @ weights @ jacobian
        step = np.linalg.solve(curvature + (damping + DECAY) * np.eye(len(theta)), -gradient)
        trial = sums_at(theta + step)
        candidate = criterion(theta + step, trial)
        if candidate < value:
            theta, sums, value = theta + step, trial, candidate
            damping = max(damping / 3, 1e-7)
        else:
            damping *= 3
        history.append(value)
    return theta, sums
