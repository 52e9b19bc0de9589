"""Coalitions of more units than can be listed: all those with f(S) - y(S) at most a limit, by branch and bound.

Units are decided one after the other, all partial coalitions in step (a frontier of arrays). A partial coalition A with
undecided units U is dropped when no T in U can bring f(A + T) - y(A + T) down to the limit. For coalitions whose mass
m_S lies in (M1, M2]
    f(S) - y(S) >= sum_{u in S} (C n_u / sqrt(M2) - y_u) + V_S / M2
                >= [the same for A] + min over T with mass in (M1 - m_A, M2 - m_A] of sum_{t in T} r_t,
    r_t = C n_t / sqrt(M2) + (w_t + B_tA + K_t / 2) / M2 - y_t,
taken over a grid of masses. The minimum is relaxed to a fractional knapsack, and that to any Lagrange multiplier of its
mass: sum_t min(0, r_t + lambda m_t) - lambda (mass), lambda by bisection. B_tA are the pair costs of t with A, and K_t
is the least that t pays for the mass that is still missing, M1 - m_A - m_t, taken from its nearest undecided units (a
fractional knapsack again; half of it, since every pair inside T has two sides).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedcollab.coalitions.inputs import Floats, Labels
from fedcollab.coalitions.solver.instance import Instance
from fedcollab.coalitions.solver.prices import Masks, unpack

#: partial coalitions that one enumeration may visit
NODES = 400_000
#: masses in the grid
GRID = 32
#: steps of mass in the table of K_t
STEPS = 512
_CHUNK = 4096


def costs_of(instance: Instance, masks: Masks) -> tuple[Masks, Floats]:
    """The admissible ones among these coalitions, and their costs f(S)."""
    member = unpack(masks, instance.count)
    sizes = member @ instance.sizes
    fine = (sizes >= instance.min_size) & (sizes <= instance.largest)
    if instance.clash is not None:
        fine &= ((member @ instance.clash) * member).sum(axis=1) == 0
    member, sizes, masks = member[fine], sizes[fine], masks[fine]
    sums = member @ instance.own + ((member @ instance.pairs) * member).sum(axis=1) / 2
    return masks, instance.cost(sizes, member @ instance.masses, sums)


def improve(instance: Instance, masks: Masks, y: Floats) -> tuple[Masks, Floats]:
    """Coalitions that violate the prices among those one unit away from the most promising known ones."""
    count = instance.count
    known, costs = costs_of(instance, masks)
    reduced = costs - unpack(known, count) @ y
    near = known[np.argsort(reduced, kind="stable")[: 4 * count]]
    bits = np.uint64(1) << np.arange(count, dtype=np.uint64)
    flips = np.unique((near[:, None] ^ bits).ravel())
    found, costs = costs_of(instance, flips[flips > 0])
    reduced = costs - unpack(found, count) @ y
    worst = np.argsort(reduced, kind="stable")[: 2 * count]
    worst = worst[reduced[worst] < -1e-9]
    return found[worst], costs[worst]


def price(instance: Instance, y: Floats, budget: int) -> tuple[float, Masks, Floats] | None:
    """The least f(S) - y(S), with the coalitions that come near it; None when the budget is spent."""
    eps = 1e-11 * max(1.0, float(np.abs(y).sum()))
    found = enumerate_below(instance, y, -eps, budget)
    if found is None:
        return None
    masks, costs = found
    if len(masks) == 0:
        return -eps, masks, costs
    reduced = costs - unpack(masks, instance.count) @ y
    order = np.argsort(reduced, kind="stable")[:200]
    return float(reduced[order[0]]), masks[order], costs[order]


def enumerate_below(instance: Instance, y: Floats, limit: float, budget: int) -> tuple[Masks, Floats] | None:
    """All admissible coalitions with f(S) - y(S) <= limit; None when more than `budget` partial ones were visited."""
    order = _deciding_order(instance)
    frontier = _Frontier(instance, y, order)
    visited = 0
    for depth in range(instance.count):
        frontier.decide(depth)
        frontier.keep(frontier.promising(depth + 1, limit))
        visited += frontier.length
        if visited > budget:
            return None
    found, costs = costs_of(instance, frontier.masks[frontier.masks > 0])
    fine = costs - unpack(found, instance.count) @ y <= limit
    return found[fine], costs[fine]


def _deciding_order(instance: Instance) -> Labels:
    """Heavy units first, then always the unit nearest to the last ones: what belongs together is decided together."""
    masses, pairs = instance.masses, instance.pairs
    distance = pairs / (masses[:, None] + masses)
    left = list(range(instance.count))
    order = [left.pop(int(np.argmax(masses[left])))]
    while left:
        recent = order[-3:]
        order.append(left.pop(int(distance[np.ix_(recent, left)].mean(axis=0).argmin())))
    return np.array(order)


class _Frontier:
    """Partial coalitions, one per row: members, size, mass, pair sum, price, and pair costs with every unit."""

    def __init__(self, instance: Instance, y: Floats, order: Labels) -> None:
        self.instance, self.y, self.order = instance, y, order
        self.masks: Masks = np.zeros(1, dtype=np.uint64)
        self.sizes, self.masses, self.sums, self.priced = (np.zeros(1) for _ in range(4))
        self.seen = np.zeros((1, instance.count))
        total = float(instance.masses.sum())
        self.grid = np.geomspace(float(instance.masses.min()), total, GRID)
        self.grid[-1] = total

    @property
    def length(self) -> int:
        """How many partial coalitions there are."""
        return len(self.masks)

    def decide(self, depth: int) -> None:
        """Each row once without and once with the next unit."""
        instance, unit = self.instance, self.order[depth]
        allowed = self.sizes + instance.sizes[unit] <= instance.largest
        if instance.clash is not None:
            foes = (np.uint64(1) << np.flatnonzero(instance.clash[unit]).astype(np.uint64)).sum(dtype=np.uint64)
            allowed &= (self.masks & foes) == 0
        rows = np.flatnonzero(allowed)
        self.sums = np.r_[self.sums, self.sums[rows] + instance.own[unit] + self.seen[rows, unit]]
        self.sizes = np.r_[self.sizes, self.sizes[rows] + instance.sizes[unit]]
        self.masses = np.r_[self.masses, self.masses[rows] + instance.masses[unit]]
        self.priced = np.r_[self.priced, self.priced[rows] + self.y[unit]]
        self.seen = np.concatenate([self.seen, self.seen[rows] + instance.pairs[unit]])
        self.masks = np.r_[self.masks, self.masks[rows] | (np.uint64(1) << np.uint64(unit))]

    def keep(self, fine: NDArray[np.bool_]) -> None:
        """Keep these rows of the frontier and drop all others."""
        self.masks, self.seen = self.masks[fine], self.seen[fine]
        self.sizes, self.masses = self.sizes[fine], self.masses[fine]
        self.sums, self.priced = self.sums[fine], self.priced[fine]

    def promising(self, depth: int, limit: float) -> NDArray[np.bool_]:
        """Rows that some choice of the undecided units could bring to the limit."""
        instance, open_units = self.instance, self.order[depth:]
        fine = np.zeros(self.length, dtype=bool)
        roof = self.masses + instance.masses[open_units].sum()
        step = float(instance.masses.sum()) / STEPS
        table = _company(instance, open_units, step) / 2
        column = np.arange(len(open_units)) * (STEPS + 1)
        for low, high in zip(np.r_[0.0, self.grid[:-1]], self.grid, strict=True):
            rows = np.flatnonzero(~fine & (self.masses <= high) & (roof > low))
            each = instance.C * instance.sizes[open_units] / np.sqrt(high) - self.y[open_units]
            each += instance.own[open_units] / high
            for start in range(0, len(rows), _CHUNK):
                part = rows[start : start + _CHUNK]
                base = instance.C * self.sizes[part] / np.sqrt(high) + self.sums[part] / high - self.priced[part]
                if len(open_units):
                    missing = low - self.masses[part]
                    place = (missing[:, None] - instance.masses[open_units]) / step
                    company = table.take(column + np.clip(place, 0, STEPS).astype(np.int64))
                    more = each + (self.seen[np.ix_(part, open_units)] + company) / high
                    base += _least(more, instance.masses[open_units], missing, missing + (high - low), limit - base)
                fine[part] |= base <= limit
        return fine


def _least(worth: Floats, masses: Floats, low: Floats, high: Floats, needed: Floats) -> Floats:
    """At most min sum of worth over sets of units with mass in (low, high], for each row; fine only up to `needed`."""
    best: Floats = np.minimum(worth, 0.0).sum(axis=1)
    taken = (worth < 0) @ masses
    rows = np.flatnonzero((best <= needed) & ((taken > high) | (taken < low)))
    if rows.size == 0:
        return best
    worth = worth[rows]
    over = taken[rows] > high[rows]
    bound = np.where(over, high[rows], low[rows])
    extreme = np.abs(worth / masses).max(axis=1)
    left, right = np.where(over, 0.0, -extreme), np.where(over, extreme, 0.0)
    value = best[rows]
    for _ in range(7):
        middle = (left + right) / 2
        shifted = worth + middle[:, None] * masses
        np.maximum(value, np.minimum(shifted, 0.0).sum(axis=1) - middle * bound, out=value)
        rising = (shifted < 0) @ masses > bound
        left, right = np.where(rising, middle, left), np.where(rising, right, middle)
    best[rows] = value
    return best


def _company(instance: Instance, units: Labels, step: float) -> Floats:
    """K_t: the least pair cost of unit t with other `units` of a given mass, for masses 0, step, 2 step, ..."""
    masses, pairs = instance.masses[units], instance.pairs[np.ix_(units, units)]
    wanted = np.arange(STEPS + 1) * step
    table = np.zeros((len(units), STEPS + 1))
    for t in range(len(units)):
        others = np.delete(np.arange(len(units)), t)
        others = others[np.argsort(pairs[t, others] / masses[others], kind="stable")]
        table[t] = np.interp(wanted, np.r_[0.0, masses[others].cumsum()], np.r_[0.0, pairs[t, others].cumsum()])
    return table
