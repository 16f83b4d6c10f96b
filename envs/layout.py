"""How do rows lie in memory, and what do the numbers mean that compiled code and Python exchange?

The state of n rows (environments) lies in blocks of `LANES` rows; in a block each field is a run
of `LANES` numbers, so that the compiler turns the physics into vector instructions.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Words = NDArray[np.uint64]
Flags = NDArray[np.bool_]

LANES = 32

# Fields of a row that both plants have: samples taken, mode, mode asked for (-1: drawn), finished.
TIME, MODE, ASKED, OVER = range(4)
OWN = 4  # a plant's own fields begin here

# Rows of `words`: the row's seed, episodes begun, state of the episode's random stream.
SEED, EPISODE, STREAM = range(3)

# What an advance answers, added up over its rows.
TERMINATED, TRUNCATED, NOT_A_NUMBER = 1, 2, 4
