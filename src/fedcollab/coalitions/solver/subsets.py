"""All coalitions of up to about 20 units at once: their costs, and the dynamic programme over subsets.

Bit u of a position in these arrays says whether unit u is in the coalition. Sums over members are built by doubling:
the upper half of the array is the lower half plus what unit u adds.

    best(S) = min over T in S that hold the highest unit of S of f(T) + best(S \\ T)

costs about 3^(U-1) / 2 steps. S and T are split into low and high bits: for every pair of high parts all pairs of low
parts are one vectorised step, and a pair of high parts that cannot lead to an improvement is skipped whole.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedcollab.coalitions.inputs import Floats, Labels
from fedcollab.coalitions.solver.instance import Instance


def spread(values: Floats) -> Floats:
    """sum over the members of every subset of `values`, as an array of 2^U."""
    total = np.zeros(1 << len(values))
    for unit, value in enumerate(values):
        half = 1 << unit
        np.add(total[:half], value, out=total[half : 2 * half])
    return total


def subset_lines(instance: Instance) -> tuple[Floats, Floats]:
    """f(S) of every subset as a line in C: slope n_S / sqrt(m_S) and intercept V_S / m_S; barred ones are infinite."""
    count = instance.count
    sizes, masses, sums = spread(instance.sizes), spread(instance.masses), np.zeros(1 << count)
    barred = np.zeros(1 << count, dtype=bool)
    for unit in range(count):
        half = 1 << unit
        np.add(sums[:half], spread(instance.pairs[unit, :unit]) + instance.own[unit], out=sums[half : 2 * half])
        if instance.clash is not None:
            foes = int((1 << np.flatnonzero(instance.clash[unit, :unit])).sum())
            barred[half : 2 * half] = barred[:half] | ((np.arange(half) & foes) != 0)
    barred |= (sizes < instance.min_size) | (sizes > instance.largest)
    masses[0] = 1.0
    intercept = sums / masses
    np.sqrt(masses, out=masses)
    slope = np.divide(sizes, masses, out=sizes)
    intercept[barred] = np.inf
    intercept[0] = np.inf
    return slope, intercept


def programme(reduced: Floats, count: int, limit: float) -> list[int] | None:
    """The partition into subsets with the lowest sum of `reduced` (all >= 0), if that is below `limit`.

    Works on costs from which prices have been taken (they add up to the same for every partition), so that whatever
    exceeds the known gap `limit` is skipped.
    """
    low = count // 2
    width = 1 << low
    table = reduced.reshape(-1, width)
    best = np.full(table.shape, np.inf)
    whole, part = _pairs(low)
    starts = np.flatnonzero(np.r_[True, whole[1:] != whole[:-1]])
    rest = whole ^ part
    best[0] = _low_programme(table[0], low)
    cheapest = table.min(axis=1)
    lowest = np.full(len(table), np.inf)
    lowest[0] = best[0].min()
    high_bits = count - low
    for high in range(1, len(table)):
        top = 1 << (high.bit_length() - 1)
        if high.bit_length() == high_bits and high != len(table) - 1:
            continue  # the highest unit is always in the first coalition taken: no other part of it is needed
        remaining = high ^ top
        sub = remaining
        row = best[high]
        while True:
            taken = sub | top
            if cheapest[taken] + lowest[high ^ taken] < limit:
                value = table[taken][part]
                value += best[high ^ taken][rest]
                np.minimum(row, np.minimum.reduceat(value, starts), out=row)
            if sub == 0:
                break
            sub = (sub - 1) & remaining
        lowest[high] = row.min()
    if not best[-1, -1] < limit:
        return None
    return _trace(reduced, best.ravel(), count)


def _pairs(bits: int) -> tuple[Labels, Labels]:
    """All (S, T) with T a subset of S, sorted by S."""
    whole, part = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    for unit in range(bits):
        bit = 1 << unit
        whole, part = np.r_[whole, whole | bit, whole | bit], np.r_[part, part, part | bit]
    order = np.argsort(whole, kind="stable")
    return whole[order], part[order]


def _low_programme(cost: Floats, bits: int) -> Floats:
    """The programme on the low bits alone."""
    best = np.full(1 << bits, np.inf)
    best[0] = 0.0
    for S in range(1, 1 << bits):
        top = 1 << (S.bit_length() - 1)
        parts = _submasks(S ^ top)
        best[S] = (cost[parts | top] + best[(S ^ top) ^ parts]).min()
    return best


def _submasks(mask: int) -> NDArray[np.int64]:
    parts = np.zeros(1, dtype=np.int64)
    while mask:
        bit = mask & -mask
        parts = np.r_[parts, parts | bit]
        mask ^= bit
    return parts


def _trace(cost: Floats, best: Floats, count: int) -> list[int]:
    """The subsets behind best(all), found again from the table."""
    chosen, S = [], (1 << count) - 1
    while S:
        top = 1 << (S.bit_length() - 1)
        parts = _submasks(S ^ top)
        values = cost[parts | top] + best[(S ^ top) ^ parts]
        taken = int(parts[values.argmin()]) | top
        chosen.append(taken)
        S ^= taken
    return chosen
