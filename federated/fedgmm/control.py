"""The control-function estimator of g from summed moments.

If the first stage is additive, x = m(z, w) + v, and eps depends on z only through v, then
E[y | x, z] = g(x) + h(v): regressing y on x and on the first-stage residual v removes the
endogeneity (Newey, Powell and Vella, 1999). This asks more of the data than E[eps | z] = 0, and
repays it: the problem is no longer ill-posed. Both processes of the paper satisfy it.
"""

import numpy as np

from federated.fedgmm.design import Array, Arrays, Design
from federated.fedgmm.linear import SPLINE_ZERO, Estimate, inverse


def coefficients(sums: Arrays, penalty: Array) -> Array:
    """Second-stage coefficients [g, h, w] from the moments of a `control` design, (k,)."""
    n = float(sums["n"][0])
    return np.asarray(inverse(sums["aa"] / n + penalty) @ sums["ay"] / n)


def two_stage_estimate(
    sums: Arrays, first_sums: Arrays, scores: Arrays, penalty: Array, theta: Array
) -> Estimate:
    """Attach the covariance that counts the estimation of v as well (Newey 1984; Murphy-Topel).

    Parameters
    ----------
    sums, first_sums : `statistics.moments` of the second and the first stage.
    scores : `statistics.control_scores` at `theta`.
    penalty : the one used for `theta`.
    """
    n = float(sums["n"][0])
    bread = inverse(sums["aa"] / n + penalty)
    # v falls by b' d(pi), hence e rises by (dh/dv) b' d(pi): the link carries that through.
    through = scores["link"] / n @ inverse(first_sums["bb"] / n, SPLINE_ZERO)
    cross = scores["cross"] @ through.T
    meat = (scores["second"] + cross + cross.T + through @ scores["first"] @ through.T) / n
    return Estimate(theta, bread @ meat @ bread / n, int(n))


def centred_level(design: Design, theta: Array, mean_columns: Array) -> float:
    """Mean of h(v) over all rows: what to add to g so that the control has mean zero.

    `mean_columns` are the column means of A, which the sums contain because A's first `size`
    columns add up to one.
    """
    control = slice(design.size, design.size + design.index_size - 1)
    return float(mean_columns[control] @ theta[control])
