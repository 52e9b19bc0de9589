"""A proven lower bound for every answer: each client's best fractional coalition, with shared pair costs.

Charge the pair cost B_uv of a coalition to its two sides, q_uv + q_vu = B_uv. Then for every partition
    L = sum_u [ C n_u / sqrt(m_S) + (w_u + sum_{v in S} q_uv) / m_S ] >= sum_u min over S holding u of [ the same ].
For a given mass the cheapest company of u is a fractional knapsack: other units in the order of q_uv / m_v. Between two
units the bracket first rises and then falls with the mass, so its minimum lies at a whole prefix of that order: the
bound of each unit is exact over all S, and needs one sort. It holds under every constraint, since these only take
coalitions away (and size limits sharpen it).

Any split q gives a valid bound. The first is the paper's own (with a symmetric matrix: client i pays m_j
D_ij); subgradient steps then move
cost from the side that wants the pair to the side that does not, and the best bound seen is kept.
"""

from __future__ import annotations

import numpy as np

from fedcollab.coalitions.inputs import Floats, Labels, Matrix
from fedcollab.coalitions.solver.instance import Instance
from fedcollab.coalitions.weights import least_bounds

#: pairs sorted over all subgradient steps
WORK = 2_000_000
#: distances are rounded down to this many levels when there are too many to sort
LEVELS = 1024


def shared_bound(instance: Instance, upper: float, work: int = WORK) -> float:
    """The bound for an instance in memory; `upper` (a known objective) sets the length of the steps."""
    count = instance.count
    share = instance.pairs * (instance.masses / (instance.masses[:, None] + instance.masses))
    steps = int(np.clip(work // max(1, count * count), 1, 60))
    best, length = -np.inf, 1.0
    for _ in range(steps):
        bounds, company = _best_company(instance, share)
        total = float(bounds.sum())
        if total > best:
            best = total
        else:
            length *= 0.7
        slope = company - company.T
        norm = float((slope * slope).sum())
        if norm == 0 or upper - total <= 1e-12 * upper:
            break
        share = share + length * (upper - total) / norm * slope
    return best


def _best_company(instance: Instance, share: Floats) -> tuple[Floats, Floats]:
    """Each unit's least charge over all coalitions that hold it, and the slope of the charge in its shares."""
    count, masses = instance.count, instance.masses
    rank = share / masses
    np.fill_diagonal(rank, -np.inf)
    order = rank.argsort(axis=1, kind="stable")
    mass = masses[order].cumsum(axis=1)
    cost = np.take_along_axis(share, order, axis=1)
    cost[:, 0] = instance.own
    charge = instance.C * instance.sizes[:, None] / np.sqrt(mass) + cost.cumsum(axis=1) / mass
    at = charge.argmin(axis=1)
    rows = np.arange(count)
    taken = np.arange(count) <= at[:, None]
    company = np.zeros((count, count))
    np.put_along_axis(company, order, taken / mass[rows, at][:, None], axis=1)
    np.fill_diagonal(company, 0)
    return charge[rows, at], company


def row_bound(matrix: Matrix, quantities: Floats, C: float, known: Floats) -> float:
    """The same bound with the paper's split, row by row, for a matrix too large to sort.

    `known` is what each client pays in some partition. Its best coalition holds only clients nearer than that (one
    farther away raises the average by more than its mass brings), so only those are sorted; where they are still many,
    they are rounded down to levels. The bound of the client's own weights (weights.py) is never above that of its best
    coalition, which is one choice of weights, but it rounds nothing: where it is the larger one, it counts.
    """
    total = 0.0
    reach = (known * (1 + 1e-6)).tolist()
    for client, row in enumerate(matrix):
        near = (row < reach[client]).nonzero()[0]
        distance, mass = row[near], quantities[near]
        if len(near) > LEVELS:
            total += _rounded_charge(client, near, distance.astype(np.float64), mass, C, reach[client])
            continue
        mass[near == client] = 0.0
        order = distance.argsort()
        total += _least_charge(quantities[client], distance[order], mass[order], C)
    return total


def _least_charge(mine: float, distance: Matrix, mass: Floats, C: float) -> float:
    """Return the least bound of a client with these samples over all prefixes of the others, nearest first."""
    filled = mine + mass.cumsum()
    charge = C / np.sqrt(filled) + (mass * distance).cumsum() / filled
    return min(C / float(np.sqrt(mine)), float(charge.min()))


def _rounded_charge(client: int, near: Labels, distance: Floats, mass: Floats, C: float, reach: float) -> float:
    """Return the larger of two lower bounds: of the best coalition with rounded distances, and of own weights."""
    scale = LEVELS / reach
    level = np.minimum((distance * scale).astype(np.int64), LEVELS - 1)
    others = np.where(near == client, 0.0, mass)
    summed: Floats = np.bincount(level, weights=others, minlength=LEVELS).astype(np.float64)
    rounded = _least_charge(float(mass[near == client][0]), np.arange(LEVELS) / scale, summed, C)
    over = np.maximum(rounded - distance, 0.0)
    if mass @ (over * over) >= C * C:  # the equation of lambda is passed already: own weights have a lower bound
        return rounded
    return float(least_bounds(distance[None], mass, np.array([reach]), C)[0])
