"""Words and figures that the report's parts share."""

from collections.abc import Sequence

from cluster.evidence import Figure, interval
from cluster.plots import PALETTE

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
    "features": "learnt features, closed-form GMM",
    "direct_network": "direct network (ignores endogeneity)",
    "floor": "best function of the image's class",
    "private": "private federated GMM",
    "without_noise": "the same estimator without noise",
    "dp_2s_gd": "DP-2S-GD at equal rho",
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
    return Figure(*interval(values), len(values), unit, label, "lower")


COLOURS = dict(
    zip(("sieve", "control", "neural", "fedoadam", "fedsgda", "fedgda"), PALETTE, strict=False),
    features=PALETTE[0],
)
"""One colour an estimator, the same in every plot."""
