"""One interval of the bioreactor for a batch of rows, compiled: exact solution, reward, episode.

The equations are in `envs.bioreactor_plant`; tests hold the two against each other and LSODA.
"""

from envs.compiled import begin, compiled, entry, look
from envs.layout import (
    LANES,
    NOT_A_NUMBER,
    OVER,
    OWN,
    TERMINATED,
    TIME,
    Flags,
    Floats,
    Singles,
    Words,
)

# Fields of a row: state, controls in force and their summed moves, time to go, k, coefficients.
Y1, Y2, U1, U2, MOVED, TO_GO, K, A, B, D = range(OWN, OWN + 10)
FIELDS = OWN + 10
# Entries of a plan, the scalars that all rows share.
STEP, INTERVALS, HIGHEST, MOVE, Y1_START, Y2_START = range(6)
PLAN = 6


@compiled
def phi2(z: float) -> float:
    """(z - 1 + e^-z) / z^2 for z in [0, 1.5]: its power series, by Horner's rule."""
    total = 1.0
    for n in range(22, 2, -1):
        total = 1.0 - z * total / n
    return 0.5 * total


@compiled
def bioreactor_move(s: Floats, w: int, actions: Singles, highest: float) -> None:
    """Set the controls from actions (w, 2), clipped to [0, highest], and sum their moves.

    The first controls of an episode are no move: there is none before them.
    """
    for i in range(w):
        u1 = min(max(float(actions[i, 0]), 0.0), highest)
        u2 = min(max(float(actions[i, 1]), 0.0), highest)
        moved = abs(u1 - s[U1 * LANES + i]) + abs(u2 - s[U2 * LANES + i])
        s[MOVED * LANES + i] = moved if s[TIME * LANES + i] > 0.0 else 0.0
        s[U1 * LANES + i] = u1
        s[U2 * LANES + i] = u2


@compiled
def bioreactor_physics(s: Floats, w: int, h: float) -> None:
    """Move the first w lanes of block s on by h, exactly."""
    for i in range(w):
        y1, u1, u2 = s[Y1 * LANES + i], s[U1 * LANES + i], s[U2 * LANES + i]
        z = (u1 + s[A * LANES + i] * u1 * u1) * h
        second = phi2(z)
        first = 1.0 - z * second
        feed = s[D * LANES + i] * u2 * h
        area = h * (y1 * first + feed * second)
        s[Y1 * LANES + i] = y1 * (1.0 - z * first) + feed * first
        s[Y2 * LANES + i] += (s[B * LANES + i] * u1 - s[K * LANES + i] * u2) * area


@compiled
def bioreactor_judge(s: Floats, w: int, plan: Floats, reward: Floats, terminated: Flags) -> None:
    """Reward the interval just taken by equation 32, count it, and say which lanes are finished."""
    for i in range(w):
        time = s[TIME * LANES + i] + 1.0
        last = time >= plan[INTERVALS]
        s[TIME * LANES + i] = time
        s[TO_GO * LANES + i] = 1.0 - time * plan[STEP]
        reward[i] = (s[Y2 * LANES + i] if last else 0.0) - plan[MOVE] * s[MOVED * LANES + i]
        terminated[i] = last


@compiled
def bioreactor_begin(s: Floats, i: int, words: Words, j: int, plan: Floats, ks: Floats) -> None:
    """Fill row j, lane i of block s, for its next episode."""
    mode = begin(s, i, words, j, ks.size)
    s[K * LANES + i] = ks[mode]
    s[Y1 * LANES + i] = plan[Y1_START]
    s[Y2 * LANES + i] = plan[Y2_START]
    s[U1 * LANES + i] = 0.0
    s[U2 * LANES + i] = 0.0
    s[MOVED * LANES + i] = 0.0
    s[TO_GO * LANES + i] = 1.0


@entry
def bioreactor_advance(
    actions: Singles, rows: Floats, words: Words, plan: Floats, ks: Floats, select: Floats,
    obs: Singles, reward: Floats, terminated: Flags,
) -> int:  # fmt: skip
    """Take one interval in every row; a row that had finished begins its next episode instead.

    actions (n, 2), obs (n, k) and reward, terminated (n,) have no padding; `rows` holds whole
    blocks. Where an action is not a number nothing happens but the answer.

    Returns
    -------
    `TERMINATED` where any row is, `NOT_A_NUMBER`, or 0.
    """
    answer = 0
    for i in range(reward.size):
        if actions[i, 0] != actions[i, 0] or actions[i, 1] != actions[i, 1]:
            return NOT_A_NUMBER
    for at in range(0, reward.size, LANES):
        w = min(LANES, reward.size - at)
        s = rows[at * FIELDS : (at + LANES) * FIELDS]
        bioreactor_move(s, w, actions[at:], plan[HIGHEST])
        bioreactor_physics(s, w, plan[STEP])
        bioreactor_judge(s, w, plan, reward[at:], terminated[at:])
        for i in range(w):
            j = at + i
            if s[OVER * LANES + i] != 0.0:
                bioreactor_begin(s, i, words, j, plan, ks)
                reward[j], terminated[j] = 0.0, False
            elif terminated[j]:
                s[OVER * LANES + i] = 1.0
                answer = TERMINATED
        look(s, w, select, obs[at:])
    return answer


@entry
def bioreactor_reset(
    chosen: Flags, rows: Floats, words: Words, plan: Floats, ks: Floats, select: Floats,
    obs: Singles,
) -> None:  # fmt: skip
    """Begin an episode in the chosen rows (n,) and fill all of obs (n, k)."""
    for at in range(0, chosen.size, LANES):
        w = min(LANES, chosen.size - at)
        s = rows[at * FIELDS : (at + LANES) * FIELDS]
        for i in range(w):
            if chosen[at + i]:
                bioreactor_begin(s, i, words, at + i, plan, ks)
        look(s, w, select, obs[at:])
