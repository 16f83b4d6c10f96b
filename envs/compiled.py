"""What the compiled code of both plants shares: the compiler, arithmetic, randomness, rows.

There is one exponential, made of sums and products, and nothing is reordered: a row's numbers are
the same bits whether it is stepped alone or among thousands.
"""

import math
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np
from numba import njit

from envs.layout import (
    ASKED,
    EPISODE,
    LANES,
    MODE,
    OVER,
    SEED,
    STREAM,
    TIME,
    Floats,
    Singles,
    Words,
)

P = ParamSpec("P")
R = TypeVar("R")

GOLDEN = np.uint64(0x9E3779B97F4A7C15)

Coefficients = tuple[float, ...]
CENTRE = (
    2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
    4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
    1.3314166789178437745e2, 3.3871328727963666080e0,
)  # fmt: skip
UNDER_CENTRE = (
    5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4,
    2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2,
    4.2313330701600911252e1,
)  # fmt: skip
FLANK = (
    7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
    1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0,
    4.63033784615654529590e0, 1.42343711074968357734e0,
)  # fmt: skip
UNDER_FLANK = (
    1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
    1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0,
    2.05319162663775882187e0,
)  # fmt: skip
TAIL = (
    2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
    2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e0,
    5.46378491116411436990e0, 6.65790464350110377720e0,
)  # fmt: skip
UNDER_TAIL = (
    2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
    7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
    5.99832206555887937690e-1,
)  # fmt: skip


def _sources() -> str:
    """Digest of all compiled code, which includes the constants that it was compiled with."""
    here = Path(__file__)
    files = (here, here.with_name("layout.py"), *sorted(here.parent.glob("*_kernel.py")))
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def _can_keep() -> bool:
    """Whether numba will find a place for its cache other than one under the user's home."""
    kept = Path(__file__).with_name("__pycache__")
    place = kept if kept.exists() else kept.parent
    return os.access(place, os.W_OK) or "NUMBA_CACHE_DIR" in os.environ


_SOURCES, _KEPT = _sources(), _can_keep()


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile with numba, as a part of what calls it: IEEE arithmetic, division by zero is inf."""
    made: Callable[P, R] = njit(error_model="numpy")(function)
    return made


def entry(function: Callable[P, R]) -> Callable[P, R]:
    """Compile with numba what Python calls, and keep it beside the source for the next process.

    Left alone, numba would fall back to a folder under the user's home where the source cannot be
    written, and would take a kept function as long as its own file is unchanged, whatever became
    of the functions it calls: so it is kept beside the source or not at all, under a name that
    carries a digest of all compiled code.
    """
    function.__qualname__ += f"-{_SOURCES}"
    made: Callable[P, R] = njit(cache=_KEPT, error_model="numpy", nogil=True)(function)
    return made


@compiled
def exponential(x: float) -> float:
    """exp(x) within 1 unit in the last place for |x| < 700, clamped beyond; no branch, no call."""
    x = min(max(x, -700.0), 700.0)
    shifted = x * 1.4426950408889634 + 6755399441055744.0  # the sum's low bits are round(x / ln 2)
    n = shifted - 6755399441055744.0
    r = (x - n * 6.93145751953125e-1) - n * 1.42860682030941723212e-6
    p = 1.6059043836821613e-10 * r + 2.08767569878681e-09
    p = (p * r + 2.505210838544172e-08) * r + 2.755731922398589e-07
    p = (p * r + 2.7557319223985893e-06) * r + 2.48015873015873e-05
    p = (p * r + 0.0001984126984126984) * r + 0.001388888888888889
    p = (p * r + 0.008333333333333333) * r + 0.041666666666666664
    p = ((p * r + 0.16666666666666666) * r + 0.5) * r + 1.0
    low: np.int64 = np.float64(shifted).view(np.int64)
    power: float = np.int64((low + np.int64(1023)) << np.int64(52)).view(np.float64)
    return (p * r + 1.0) * power


@compiled
def mix(z: np.uint64) -> np.uint64:
    """Scramble 64 bits: the output function of SplitMix64 (Steele, Lea, Flood 2014)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled
def uniform(words: Words, i: int) -> float:
    """Draw from (0, 1) and move row i's stream on."""
    words[STREAM, i] += GOLDEN
    return (float(mix(words[STREAM, i]) >> np.uint64(12)) + 0.5) * 2.220446049250313e-16


@compiled
def ratio(r: float, over: Coefficients, under: Coefficients) -> float:
    """Quotient of two polynomials, highest power first; the lower one ends in 1."""
    a, b = over[0], under[0]
    for k in range(1, len(over)):
        a = a * r + over[k]
    for k in range(1, len(under)):
        b = b * r + under[k]
    return a / (b * r + 1.0)


@compiled
def quantile(p: float) -> float:
    """Return the standard normal's quantile at p in (0, 1); Wichura's AS 241, relative 1e-15."""
    q = p - 0.5
    if abs(q) <= 0.425:
        return q * ratio(0.180625 - q * q, CENTRE, UNDER_CENTRE)
    r = math.sqrt(-math.log(min(p, 1.0 - p)))
    size = ratio(r - 1.6, FLANK, UNDER_FLANK) if r <= 5.0 else ratio(r - 5.0, TAIL, UNDER_TAIL)
    return math.copysign(size, q)


@compiled
def begin(s: Floats, i: int, words: Words, j: int, modes: int) -> int:
    """Begin row j's next episode, which is lane i of block s: its stream, its mode; the mode."""
    words[STREAM, j] = mix(mix(words[SEED, j]) ^ mix(words[EPISODE, j] + GOLDEN))
    words[EPISODE, j] += np.uint64(1)
    drawn = min(int(uniform(words, j) * modes), modes - 1)
    asked = int(s[ASKED * LANES + i])
    mode = drawn if asked < 0 else asked
    s[MODE * LANES + i] = mode
    s[TIME * LANES + i] = 0.0
    s[OVER * LANES + i] = 0.0
    return mode


@compiled
def look(s: Floats, w: int, select: Floats, obs: Singles) -> None:
    """Fill obs (w, k): column c is (field - centre) * scale, from row c of `select` (k, 3)."""
    for c in range(select.shape[0]):
        field, centre, scale = int(select[c, 0]), select[c, 1], select[c, 2]
        for i in range(w):
            obs[i, c] = (s[field * LANES + i] - centre) * scale
