"""Random streams that do not touch each other: one seed, one generator a named purpose."""

import numpy as np


def stream(seed: int, *purpose: str | int) -> np.random.Generator:
    """Return the generator of one purpose under `seed`, for instance `stream(0, "train")`.

    The purpose becomes the spawn key of a `SeedSequence`, so streams of different purposes are
    independent, and drawing more from one (more rows, say) leaves all the others as they were.
    A purpose can have several parts, such as ("client", 3).

    Parameters
    ----------
    seed
        The run's seed, zero or positive.
    purpose
        Words and numbers that name what is drawn.
    """
    key = "/".join(str(part) for part in purpose).encode()
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=tuple(key)))
