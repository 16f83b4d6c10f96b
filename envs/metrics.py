"""How good was an episode? Figures that a control engineer would ask for, one for each row.

All take arrays (n, samples) of values after each sample, as `envs.rollout.Episodes` records them,
and answer (n,). NaN, which stands after a row's end, is an error here: cut the episodes first.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from envs.cstr_plant import SAMPLE
from envs.rollout import Episodes

Floats = NDArray[np.float64]


def _series(name: str, values: ArrayLike) -> Floats:
    series = np.asarray(values, np.float64)
    if series.ndim != 2 or 0 in series.shape:
        raise ValueError(f"{name} has the shape {series.shape}; it must be (n, samples).")
    if not np.isfinite(series).all():
        raise ValueError(f"{name} holds values that are not finite numbers.")
    return series


def _column(name: str, values: ArrayLike, rows: int) -> Floats:
    column = np.asarray(values, np.float64)
    if column.shape not in ((), (rows,)) or not np.isfinite(column).all():
        raise ValueError(f"{name} must be one finite number or {rows} of them.")
    return np.broadcast_to(column, (rows,))[:, None]


def iae(temperature: ArrayLike, setpoint: ArrayLike, sample: float = SAMPLE) -> Floats:
    """Integral of the absolute error, C s: |error| after each sample, summed, times its length."""
    t = _series("temperature", temperature)
    error: Floats = np.abs(t - _column("setpoint", setpoint, len(t)))
    total: Floats = error.sum(axis=1) * sample
    return total


def overshoot(temperature: ArrayLike, start: ArrayLike, setpoint: ArrayLike) -> Floats:
    """Largest excursion beyond the set-point, as a fraction of the step from `start`; 0 for none.

    Raises
    ------
    ValueError : where the set-point is the start, so that there is no step.
    """
    progress = _progress(temperature, start, setpoint)
    beyond: Floats = np.maximum(progress.max(axis=1) - 1.0, 0.0)
    return beyond


def settling_time(
    temperature: ArrayLike,
    start: ArrayLike,
    setpoint: ArrayLike,
    band: float,
    sample: float = SAMPLE,
) -> Floats:
    """Time, s, of the last sample whose error exceeds band * step; inf if that is the last of all.

    band is 0.02 or 0.05 by custom. Raises ValueError as `overshoot` does.
    """
    outside = np.abs(_progress(temperature, start, setpoint) - 1.0) > band
    samples = outside.shape[1]
    last = np.where(outside.any(axis=1), samples - np.argmax(outside[:, ::-1], axis=1), 0)
    return np.where(last == samples, np.inf, last * sample)


def _progress(temperature: ArrayLike, start: ArrayLike, setpoint: ArrayLike) -> Floats:
    t = _series("temperature", temperature)
    first, wanted = _column("start", start, len(t)), _column("setpoint", setpoint, len(t))
    if (first == wanted).any():
        raise ValueError("A row's set-point is its start: without a step there is no overshoot.")
    fraction: Floats = (t - first) / (wanted - first)
    return fraction


def valve_travel(m: ArrayLike, start: ArrayLike) -> Floats:
    """Summed |move| of the valve, the first one from `start`."""
    positions = _series("m", m)
    path = np.concatenate([_column("start", start, len(positions)), positions], axis=1)
    travel: Floats = np.abs(np.diff(path, axis=1)).sum(axis=1)
    return travel


def steady_offset(temperature: ArrayLike, setpoint: ArrayLike, last: int = 30) -> Floats:
    """Mean |error|, C, over the last 30 samples."""
    t = _series("temperature", temperature)
    if not 1 <= last <= t.shape[1]:
        raise ValueError(f"last is {last}; there are {t.shape[1]} samples.")
    error: Floats = np.abs(t[:, -last:] - _column("setpoint", setpoint, len(t)))
    mean: Floats = error.mean(axis=1)
    return mean


def violations(values: ArrayLike, low: float = -np.inf, high: float = np.inf) -> Floats:
    """Fraction of samples outside [low, high]."""
    series = _series("values", values)
    outside = (series < low) | (series > high)
    share: Floats = outside.mean(axis=1)
    return share


def ratio(values: ArrayLike, reference: ArrayLike) -> Floats:
    """Quotient against a reference: an IAE to PI's or the bound's, y2(T) to its optimum.

    Raises
    ------
    ValueError : for a reference that is not positive.
    """
    below = np.asarray(reference, np.float64)
    if not (below > 0).all():
        raise ValueError(f"A ratio's reference must be positive; it is {below}.")
    quotient: Floats = np.asarray(values, np.float64) / below
    return quotient


@dataclass(frozen=True)
class Tracking:
    """The reactor's figures, each (n,); see the functions of the same names."""

    iae: Floats
    overshoot: Floats
    settling_2: Floats
    settling_5: Floats
    valve_travel: Floats
    steady_offset: Floats


def tracking(episodes: Episodes) -> Tracking:
    """All figures of complete episodes of the reactor.

    Raises
    ------
    ValueError : where a row ended early, such as by a trip.
    """
    t, setpoint = episodes.fields["T"], episodes.start["setpoint"]
    start = episodes.start["T"]
    return Tracking(
        iae(t, setpoint),
        overshoot(t, start, setpoint),
        settling_time(t, start, setpoint, 0.02),
        settling_time(t, start, setpoint, 0.05),
        valve_travel(episodes.fields["m"], episodes.start["m"]),
        steady_offset(t, setpoint),
    )


def product(episodes: Episodes) -> Floats:
    """Return y2(T), (n,), of complete episodes of the bioreactor.

    Raises
    ------
    ValueError : where a row has not reached its end.
    """
    last: Floats = _series("y2", episodes.fields["y2"])[:, -1]
    if (np.asarray(episodes.fields["to_go"])[:, -1] > 1e-9).any():
        raise ValueError("An episode has not reached its end, so there is no y2(T) yet.")
    return last
