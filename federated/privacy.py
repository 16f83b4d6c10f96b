"""How much noise a promise of differential privacy costs, and what was spent.

A release adds Gaussian noise of standard deviation sigma to a vector that one person can move by at
most `sensitivity` in the L2 norm. All that matters of it is mu = sensitivity / sigma:

- the release is rho-zCDP with rho = mu^2 / 2 (Bun and Steinke, 2016, Proposition 1.6), and rho adds
  up over releases that see the same rows, even if later ones depend on earlier results;
- it is (epsilon, delta)-private exactly for the delta of `gaussian_delta` (Balle and Wang, 2018,
  Theorem 8);
- several such releases together are exactly as private as one with mu^2 = sum of their mu^2
  (Dong, Roth and Su, 2022, Corollary 2: composition of Gaussian differential privacy).

So the exact formula calibrates all releases of a run together, and the conversion from zCDP is
reported beside it because it also holds where the noise is not exactly Gaussian. Epsilon is in
nats; the neighbouring relation is the caller's and is part of `sensitivity`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from scipy import optimize, special

from cluster.errors import UsageError

_SQRT_HALF = math.sqrt(0.5)
_LOG_MU = (-60.0, 60.0)
"""Where log mu is looked for; delta runs through all of (0, 1) between these ends."""


@dataclass(frozen=True)
class Release:
    """One noisy vector: its name, L2 sensitivity and noise (both in the vector's units)."""

    name: str
    sensitivity: float
    sigma: float

    @property
    def mu(self) -> float:
        """Signal to noise of one person: sensitivity / sigma; infinite without noise."""
        return _ratio(self.sensitivity, self.sigma)

    @property
    def rho(self) -> float:
        """What the release spends in zCDP, mu^2 / 2."""
        return self.mu**2 / 2


@dataclass(frozen=True)
class Ledger:
    """What a run spends: its releases and the promise that they were calibrated for."""

    epsilon: float
    delta: float
    releases: tuple[Release, ...]

    @property
    def mu(self) -> float:
        """The mu of all releases together."""
        return math.sqrt(sum(r.mu**2 for r in self.releases))

    @property
    def rho(self) -> float:
        """The zCDP of all releases together."""
        return compose([r.rho for r in self.releases])

    @property
    def exact_epsilon(self) -> float:
        """Epsilon at `delta` by the exact Gaussian formula."""
        return gaussian_epsilon(self.mu, self.delta)

    @property
    def zcdp_epsilon(self) -> float:
        """Epsilon at `delta` that follows from `rho` alone; never below the exact one."""
        return epsilon_of_rho(self.rho, self.delta)

    def __getitem__(self, name: str) -> Release:
        """Return the release called `name`; raises KeyError if there is none."""
        return {r.name: r for r in self.releases}[name]


@dataclass(frozen=True)
class Budget:
    """A promise: (epsilon, delta)-differential privacy. Epsilon may be infinite: no noise.

    Raises UsageError unless epsilon > 0 and 0 < delta < 1.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        """Refuse what promises nothing or everything."""
        _check_epsilon(self.epsilon)
        _check_delta(self.delta)

    @property
    def mu(self) -> float:
        """Largest mu that all releases together may have; infinite if epsilon is."""
        return gaussian_mu(self.epsilon, self.delta)

    def split(
        self, sensitivities: Mapping[str, float], shares: Mapping[str, float] | None = None
    ) -> Ledger:
        """Calibrate the noise of several releases so that together they keep the promise.

        Parameters
        ----------
        sensitivities : L2 sensitivity of each release, by name. One of zero needs no noise.
        shares : positive weights by the same names; a release gets mu^2 in proportion to its
            weight. Equal without them.
        """
        shares = dict.fromkeys(sensitivities, 1.0) if shares is None else shares
        if set(shares) != set(sensitivities) or not sensitivities:
            raise UsageError(
                f"The budget's shares name {sorted(shares)}, the releases are "
                f"{sorted(sensitivities)}; both must be the same and not empty."
            )
        for name, share in shares.items():
            if not (share > 0 and math.isfinite(share)):
                raise UsageError(f"The budget's share of '{name}' must be positive, got {share}.")
        whole, total = self.mu, sum(shares.values())
        releases = []
        for name, sensitivity in sensitivities.items():
            _check_sensitivity(sensitivity)
            sigma = sensitivity / (whole * math.sqrt(shares[name] / total))
            releases.append(Release(name, sensitivity, sigma))
        return Ledger(self.epsilon, self.delta, tuple(releases))


def gaussian_rho(sensitivity: float, sigma: float) -> float:
    """The zCDP of one Gaussian release, sensitivity^2 / (2 sigma^2); infinite for sigma 0."""
    return _ratio(sensitivity, sigma) ** 2 / 2


def compose(rhos: Sequence[float]) -> float:
    """The zCDP of several releases from the same rows: the sum (Bun and Steinke, Lemma 1.7)."""
    return math.fsum(rhos)


def gaussian_log_delta(epsilon: float, mu: float) -> float:
    """Logarithm of the smallest delta for which Gaussian noise gives (epsilon, delta).

    Balle and Wang (2018), Theorem 8: delta = Phi(-t) - e^epsilon Phi(-t - mu) with
    t = epsilon / mu - mu / 2. Because e^epsilon phi(t + mu) = phi(t), this is
    phi(t) (M(t) - M(t + mu)) with Mills' ratio M = Phi(-t) / phi(t), which neither overflows for
    large epsilon nor cancels for small mu.

    Parameters
    ----------
    epsilon : zero or positive, finite.
    mu : sensitivity / sigma, zero or positive, finite.
    """
    if mu == 0:
        return -math.inf
    t = epsilon / mu - mu / 2
    if t < -5:  # M(t) would overflow; here Phi(-t) is near one, so nothing cancels
        first = float(special.log_ndtr(-t))
        second = _log_density(t) + math.log(_mills(t + mu))
        return first + math.log1p(-math.exp(min(second - first, 0.0)))
    gap = _mills(t) - _mills(t + mu)
    if gap <= 0 or mu * (1 + abs(t)) < 1e-4:  # the derivative, M' = t M - 1, at the middle
        middle = t + mu / 2
        gap = mu * _mills_slope(middle)
    return _log_density(t) + (math.log(gap) if gap > 0 else -math.inf)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """The smallest delta for which Gaussian noise of this mu gives (epsilon, delta)."""
    if not (mu >= 0):
        raise UsageError(f"The signal-to-noise mu must be zero or positive, got {mu}.")
    if not epsilon >= 0:
        raise UsageError(f"The privacy parameter epsilon must not be negative, got {epsilon}.")
    if math.isinf(epsilon):
        return 0.0
    return 1.0 if math.isinf(mu) else math.exp(gaussian_log_delta(epsilon, mu))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu = sensitivity / sigma that still gives (epsilon, delta)."""
    _check_epsilon(epsilon)
    _check_delta(delta)
    if math.isinf(epsilon):
        return math.inf
    target = math.log(delta)
    return math.exp(_increasing_root(lambda u: gaussian_log_delta(epsilon, math.exp(u)) - target))


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """The smallest standard deviation of Gaussian noise that gives (epsilon, delta).

    In the units of `sensitivity`; 0 for an infinite epsilon or a sensitivity of 0.
    """
    _check_sensitivity(sensitivity)
    return sensitivity / gaussian_mu(epsilon, delta)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon >= 0 that Gaussian noise of this mu gives at delta."""
    _check_delta(delta)
    if math.isinf(mu) or gaussian_delta(0.0, mu) <= delta:
        return mu if math.isinf(mu) else 0.0
    target = math.log(delta)
    # e^(zCDP bound) is above the exact epsilon, so the root lies below it.
    high = epsilon_of_rho(mu**2 / 2, delta)
    return float(
        optimize.brentq(lambda e: gaussian_log_delta(e, mu) - target, 0.0, high, xtol=1e-14)
    )


def epsilon_of_rho(rho: float, delta: float) -> float:
    """The epsilon at delta that rho-zCDP implies, by the best Renyi order.

    Canonne, Kamath and Steinke (2020), Corollary 13 solved for epsilon: for every order
    alpha > 1, with zCDP bounding the Renyi divergence by alpha rho,
    epsilon = alpha rho + log(1 - 1/alpha) + (log(1/delta) - log alpha) / (alpha - 1).
    Every order gives a valid epsilon, and the expression has a single minimum.
    """
    _check_delta(delta)
    if not rho >= 0:
        raise UsageError(f"The zCDP parameter rho must be zero or positive, got {rho}.")
    if rho == 0 or math.isinf(rho):
        return rho
    return max(_best_order(rho, delta), 0.0)


def rho_of_epsilon(epsilon: float, delta: float) -> float:
    """The largest rho whose zCDP implies (epsilon, delta) through `epsilon_of_rho`."""
    _check_epsilon(epsilon)
    _check_delta(delta)
    if math.isinf(epsilon):
        return math.inf
    return math.exp(_increasing_root(lambda u: _best_order(math.exp(u), delta) - epsilon))


def _best_order(rho: float, delta: float) -> float:
    spare = math.log(1 / delta)

    def epsilon(u: float) -> float:  # u = log(alpha - 1)
        step = math.exp(u)
        return (1 + step) * rho + u - math.log1p(step) + (spare - math.log1p(step)) / step

    middle = math.log(math.sqrt(spare / rho))
    found = optimize.minimize_scalar(
        epsilon, bounds=(middle - 8, middle + 8), method="bounded", options={"xatol": 1e-10}
    )
    return float(found.fun)


def _increasing_root(f: Callable[[float], float]) -> float:
    """The root of an increasing function of log mu, or of log rho."""
    return float(optimize.brentq(f, *_LOG_MU, xtol=1e-14, rtol=1e-14))


def _mills(t: float) -> float:
    """Phi(-t) / phi(t)."""
    return math.sqrt(math.pi / 2) * float(special.erfcx(t * _SQRT_HALF))


def _mills_slope(t: float) -> float:
    """Minus the derivative of Mills' ratio, 1 - t M(t), without cancellation for large t."""
    if t < 50:
        return 1 - t * _mills(t)
    square = t**-2  # Abramowitz and Stegun (1964), 26.2.12
    return square * (1 - 3 * square * (1 - 5 * square * (1 - 7 * square)))


def _log_density(t: float) -> float:
    return -t * t / 2 - math.log(2 * math.pi) / 2


def _ratio(sensitivity: float, sigma: float) -> float:
    if sensitivity == math.inf:  # an unbounded release, whatever its noise
        return math.inf
    _check_sensitivity(sensitivity)
    if not sigma >= 0:
        raise UsageError(f"The noise's standard deviation must not be negative, got {sigma}.")
    if sensitivity == 0:
        return 0.0
    return math.inf if sigma == 0 else sensitivity / sigma


def _check_epsilon(epsilon: float) -> None:
    if not epsilon > 0:
        raise UsageError(f"The privacy parameter epsilon must be positive, got {epsilon}.")


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise UsageError(f"The privacy parameter delta must lie between 0 and 1, got {delta}.")


def _check_sensitivity(sensitivity: float) -> None:
    if not (sensitivity >= 0 and math.isfinite(sensitivity)):
        raise UsageError(
            f"The sensitivity of a release must be finite and not negative, got {sensitivity}."
        )
