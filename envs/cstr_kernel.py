"""One sample of the stirred-tank reactor for a batch of rows, compiled: physics, reward, episode.

The equations and their sources are in `envs.cstr_plant`; this is the same model, laid out for
speed. Tests hold the two against each other and against LSODA.
"""

import math

from envs.compiled import begin, compiled, entry, exponential, look, quantile, uniform
from envs.layout import (
    LANES,
    NOT_A_NUMBER,
    OVER,
    OWN,
    TERMINATED,
    TIME,
    TRUNCATED,
    Flags,
    Floats,
    Singles,
    Words,
)

# Fields of a row: state, valve and its last move, tracking; inputs in force, noise on CAi, inputs
# at rest; start; coefficients; and what a sample's substeps share.
CA, T, TC, B, M, MOVED, SETPOINT, ERROR, INTEGRAL = range(OWN, OWN + 9)
CAI, TI, TCI, F, DRIFT, CAI0, TI0, TCI0, F0 = range(OWN + 9, OWN + 18)
CA0, T0, TC0, B0, M0 = range(OWN + 18, OWN + 23)
PER_V, K0, E_R, SECOND, FIRST, HEAT, WARM, COOL = range(OWN + 23, OWN + 31)
PER_VC, PER_TAU, FC_MAX, LN_ALPHA, FC, KINETIC, INVERSE = range(OWN + 31, OWN + 38)
FIELDS = OWN + 38
# Entries of a plan, the scalars that all rows share.
STEP, SAMPLES, INCREMENT, RATE, LOW, HIGH, TRIP = range(7)
ABSOLUTE, SQUARE, MOVE, BONUS, BAND, NOISE_SD, NOISE_AR = range(7, 14)
PLAN = 14


@compiled
def cstr_rates(
    ca: float, t: float, tc: float, b: float, f: float, cai: float, ti: float, tci: float,
    fc: float, k: float, e_r: float, inverse: float, second: float, first: float, heat: float,
    warm: float, cool: float, per_tau: float,
) -> tuple[float, float, float, float]:  # fmt: skip
    """Time derivatives of CA, T, TC, b; `f` is F/V and `fc` Fc/Vc, both 1/s.

    `k` is the reaction's constant at the sample's beginning and `inverse` 1/T_abs there. Since then
    it has changed by exp(d), whose series to d^7 is exact to 1e-16 for 3 C and to 1e-8 for 35 C;
    the reactor moves by less than 1 C in a sample.
    """
    d = e_r * (1.0 / (t + 273.16) - inverse)
    p = (0.0001984126984126984 * d + 0.001388888888888889) * d + 0.008333333333333333
    p = (((p * d + 0.041666666666666664) * d + 0.16666666666666666) * d + 0.5) * d + 1.0
    rate = k * (p * d + 1.0) * ca * (second * ca + first)
    through = t - tc
    return (
        f * (cai - ca) - rate,
        f * (ti - t) + heat * rate - warm * through,
        cool * through - fc * (tc - tci),
        ((t - 80.0) * 0.05 - b) * per_tau,
    )


@compiled
def cstr_substep(s: Floats, w: int, h: float) -> None:
    """Move the first w lanes of block s on by h seconds: one Runge-Kutta step of order 4."""
    g = 0.5 * h
    z = h / 6.0
    for i in range(w):
        ca, t, tc, b = s[CA * LANES + i], s[T * LANES + i], s[TC * LANES + i], s[B * LANES + i]
        fixed = (
            s[F * LANES + i] * s[PER_V * LANES + i], s[CAI * LANES + i] + s[DRIFT * LANES + i],
            s[TI * LANES + i], s[TCI * LANES + i], s[FC * LANES + i], s[KINETIC * LANES + i],
            s[E_R * LANES + i], s[INVERSE * LANES + i], s[SECOND * LANES + i],
            s[FIRST * LANES + i], s[HEAT * LANES + i], s[WARM * LANES + i], s[COOL * LANES + i],
            s[PER_TAU * LANES + i],
        )  # fmt: skip
        p, q, r, u = cstr_rates(ca, t, tc, b, *fixed)
        p2, q2, r2, u2 = cstr_rates(ca + g * p, t + g * q, tc + g * r, b + g * u, *fixed)
        p3, q3, r3, u3 = cstr_rates(ca + g * p2, t + g * q2, tc + g * r2, b + g * u2, *fixed)
        p4, q4, r4, u4 = cstr_rates(ca + h * p3, t + h * q3, tc + h * r3, b + h * u3, *fixed)
        s[CA * LANES + i] = ca + z * (p + 2.0 * (p2 + p3) + p4)
        s[T * LANES + i] = t + z * (q + 2.0 * (q2 + q3) + q4)
        s[TC * LANES + i] = tc + z * (r + 2.0 * (r2 + r3) + r4)
        s[B * LANES + i] = b + z * (u + 2.0 * (u2 + u3) + u4)


@compiled
def cstr_physics(s: Floats, w: int, h: float) -> None:
    """Move the first w lanes of block s on by h seconds, in two substeps.

    One would do for a valve that moves like a controller's; two keep the error below 1e-6 of every
    value when it is thrown from stop to stop.
    """
    for i in range(w):
        inverse = 1.0 / (s[T * LANES + i] + 273.16)
        fc = s[FC_MAX * LANES + i] * exponential(-s[M * LANES + i] * s[LN_ALPHA * LANES + i])
        s[FC * LANES + i] = fc * s[PER_VC * LANES + i]
        s[INVERSE * LANES + i] = inverse
        s[KINETIC * LANES + i] = s[K0 * LANES + i] * exponential(s[E_R * LANES + i] * inverse)
    cstr_substep(s, w, 0.5 * h)
    cstr_substep(s, w, 0.5 * h)


@compiled
def cstr_inputs(s: Floats, w: int, words: Words, at: int, plan: Floats, changes: Floats) -> None:
    """Set the inputs of the coming sample: noise on CAi, and steps at their sample.

    `changes` (k, 3) holds field, sample and size of each step.
    """
    for c in range(changes.shape[0]):
        field = int(changes[c, 0])
        for i in range(w):
            if s[TIME * LANES + i] == changes[c, 1]:
                s[field * LANES + i] += changes[c, 2]
    if plan[NOISE_SD] > 0.0:
        ar = plan[NOISE_AR]
        fresh = plan[NOISE_SD] * math.sqrt(1.0 - ar * ar)
        for i in range(w):
            drawn = fresh * quantile(uniform(words, at + i))
            s[DRIFT * LANES + i] = ar * s[DRIFT * LANES + i] + drawn


@compiled
def cstr_begin(s: Floats, i: int, words: Words, j: int, plan: Floats, setpoints: Floats) -> None:
    """Put row j, lane i of block s, at rest at the start of its next episode."""
    mode = begin(s, i, words, j, setpoints.size)
    for k in range(4):
        s[(CAI + k) * LANES + i] = s[(CAI0 + k) * LANES + i]
    for k in range(5):
        s[(CA + k) * LANES + i] = s[(CA0 + k) * LANES + i]
    s[SETPOINT * LANES + i] = setpoints[mode]
    s[ERROR * LANES + i] = setpoints[mode] - s[T * LANES + i]
    s[INTEGRAL * LANES + i] = 0.0
    s[MOVED * LANES + i] = 0.0
    s[DRIFT * LANES + i] = 0.0
    if plan[NOISE_SD] > 0.0:
        s[DRIFT * LANES + i] = plan[NOISE_SD] * quantile(uniform(words, j))


@compiled
def cstr_move(s: Floats, w: int, actions: Singles, plan: Floats) -> None:
    """Set the valve m from actions (w, 1): a position or an increment, rate-limited, in [0, 1]."""
    rate = plan[RATE]
    for i in range(w):
        before = s[M * LANES + i]
        wanted = float(actions[i, 0]) + plan[INCREMENT] * before
        m = before + min(max(wanted - before, -rate), rate)
        m = min(max(m, 0.0), 1.0)
        s[M * LANES + i] = m
        s[MOVED * LANES + i] = m - before


@compiled
def cstr_judge(
    s: Floats, w: int, plan: Floats, reward: Floats, terminated: Flags, truncated: Flags
) -> None:
    """Reward the sample just taken, count it, and say which lanes are finished."""
    for i in range(w):
        e = s[SETPOINT * LANES + i] - s[T * LANES + i]
        time = s[TIME * LANES + i] + 1.0
        tripped = (s[T * LANES + i] < plan[LOW]) | (s[T * LANES + i] > plan[HIGH])
        s[ERROR * LANES + i] = e
        s[INTEGRAL * LANES + i] += e * plan[STEP]
        s[TIME * LANES + i] = time
        reward[i] = (
            (plan[BONUS] if abs(e) < plan[BAND] else 0.0)
            - (plan[TRIP] if tripped else 0.0)
            - plan[ABSOLUTE] * abs(e)
            - plan[SQUARE] * e * e
            - plan[MOVE] * abs(s[MOVED * LANES + i])
        )
        terminated[i] = tripped
        truncated[i] = (time >= plan[SAMPLES]) & (not tripped)


@entry
def cstr_advance(
    actions: Singles, rows: Floats, words: Words, plan: Floats, setpoints: Floats,
    changes: Floats, select: Floats, obs: Singles, reward: Floats, terminated: Flags,
    truncated: Flags,
) -> int:  # fmt: skip
    """Take one sample in every row; a row that had finished begins its next episode instead.

    actions (n, 1), obs (n, k) and reward, terminated, truncated (n,) have no padding; `rows` holds
    whole blocks. Where an action is not a number nothing happens but the answer.

    Returns
    -------
    The sum of `TERMINATED` and `TRUNCATED`, as far as any row is, or `NOT_A_NUMBER`.
    """
    answer = 0
    for i in range(reward.size):
        if actions[i, 0] != actions[i, 0]:
            return NOT_A_NUMBER
    for at in range(0, reward.size, LANES):
        w = min(LANES, reward.size - at)
        s = rows[at * FIELDS : (at + LANES) * FIELDS]
        cstr_inputs(s, w, words, at, plan, changes)
        cstr_move(s, w, actions[at:], plan)
        cstr_physics(s, w, plan[STEP])
        cstr_judge(s, w, plan, reward[at:], terminated[at:], truncated[at:])
        for i in range(w):
            j = at + i
            if s[OVER * LANES + i] != 0.0:
                cstr_begin(s, i, words, j, plan, setpoints)
                reward[j], terminated[j], truncated[j] = 0.0, False, False
            elif terminated[j] or truncated[j]:
                s[OVER * LANES + i] = 1.0
                answer |= TERMINATED if terminated[j] else TRUNCATED
        look(s, w, select, obs[at:])
    return answer


@entry
def cstr_reset(
    chosen: Flags, rows: Floats, words: Words, plan: Floats, setpoints: Floats, select: Floats,
    obs: Singles,
) -> None:  # fmt: skip
    """Begin an episode in the chosen rows (n,) and fill all of obs (n, k)."""
    for at in range(0, chosen.size, LANES):
        w = min(LANES, chosen.size - at)
        s = rows[at * FIELDS : (at + LANES) * FIELDS]
        for i in range(w):
            if chosen[at + i]:
                cstr_begin(s, i, words, at + i, plan, setpoints)
        look(s, w, select, obs[at:])
