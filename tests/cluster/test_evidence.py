"""The interval that every mean over repetitions is given with."""

import math
from itertools import pairwise

import pytest

from cluster.evidence import interval


def test_an_interval_by_hand() -> None:
    mean, low, high = interval([1.0, 2.0, 6.0])
    # of deviation sqrt(7); for two degrees of freedom t has a closed form
    half = 0.95 * math.sqrt(2 / (4 * 0.975 * 0.025)) * math.sqrt(7 / 3)
    assert (mean, low, high) == pytest.approx((3.0, 3.0 - half, 3.0 + half), rel=1e-12)


def test_one_value_has_no_interval() -> None:
    assert interval([2.5]) == (2.5, None, None)


def test_equal_values_leave_no_doubt_and_more_values_less_of_it() -> None:
    assert interval([0.5] * 4) == (0.5, 0.5, 0.5)
    ends = [interval([1.0, 2.0] * n)[2] for n in range(1, 6)]
    assert all(a is not None and b is not None and a > b for a, b in pairwise(ends))
