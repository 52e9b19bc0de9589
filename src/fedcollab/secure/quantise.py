"""Real numbers as integers modulo 2^32, so that masks can hide them and sums are exact.

    q(v) = round(clip(v, -R, R) p / step)  mod 2^32,     step = 2^-27,   R = 15

where p is the member's share of the coalition's samples. The shares sum to 1, so that the sum over members stays
within R and, with room for rounding, within the 2^32 steps from -16 to 16: it never wraps around. Each member rounds
by at most step / 2: a mean over n members is wrong by at most

    n step / 2 = n 2^-28        (20 members: 7.5e-8, about the rounding of a 32-bit float near 1)

and by that over the survivors' share where members dropped out. Values beyond R are cut; how many is told.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RANGE = 15.0
STEP = 2.0**-27

Integers = NDArray[np.uint32]


def to_integers(values: NDArray[np.float64], share: float) -> tuple[Integers, int]:
    """Return values times a share as integers modulo 2^32, and how many values were beyond the range.

    Parameters
    ----------
    values : array
        The values.
    share : float
        The member's share of the coalition's samples, at most 1.

    Examples
    --------
    >>> integers, cut = to_integers(np.array([1.0, -1.0, 99.0]), 0.5)
    >>> to_numbers(integers).tolist(), cut
    ([0.5, -0.5, 7.5], 1)
    """
    cut = np.abs(values) > RANGE
    rounded = np.rint(np.clip(values, -RANGE, RANGE) * (share / STEP)).astype(np.int64)
    return (rounded & 0xFFFFFFFF).astype(np.uint32), int(cut.sum())


def to_numbers(total: Integers) -> NDArray[np.float64]:
    """Return the numbers that a sum of integers modulo 2^32 stands for, from -16 to 16."""
    return total.view(np.int32).astype(np.float64) * STEP


def error_bound(members: int, share: float = 1.0) -> float:
    """Return how wrong a mean can be because its members' values were rounded.

    Parameters
    ----------
    members : int
        How many members' values were added up.
    share : float, default 1.0
        Their share of the coalition's samples: below 1 where members dropped out.
    """
    return members * STEP / 2 / share
