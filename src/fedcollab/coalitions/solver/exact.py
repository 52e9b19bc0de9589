"""The proven optimum: prices, the few coalitions that they leave, and a search over these.

1. Local search gives a partition of cost `upper`; prices y (see prices.py) prove that none costs less than `lower`.
2. A coalition with f(S) - y(S) > upper - lower cannot be in a better partition (reduced-cost fixing). Few are left.
3. A search picks the unit with the fewest coalitions left, tries each, and stops where reduced costs exceed the gap.

Up to `LISTED` units all 2^U coalitions are listed; beyond that those with a small f(S) - y(S) are enumerated by
branch and bound (columns.py). When too many are left, up to `PROGRAMME` units the dynamic programme over subsets
decides; its work is fixed, so every matrix of that size is solved. All budgets count work, never time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcollab.coalitions.inputs import Floats, Labels
from fedcollab.coalitions.solver import columns
from fedcollab.coalitions.solver.instance import TOLERANCE, Instance
from fedcollab.coalitions.solver.prices import Masks, Pool, column_generation, unpack
from fedcollab.coalitions.solver.subsets import programme, spread, subset_lines

#: up to this many units every coalition is listed, and the subset programme settles what nothing else does
PROGRAMME = 20
LISTED = 20
#: up to this many units the subset programme is the quickest way
SMALL = 13
#: bit masks of coalitions are 64 bits wide
WIDEST = 64
#: violated coalitions that one round of prices looks at
MANY = 4000
#: rounds of prices where coalitions are enumerated
ROUNDS = 400
#: coalitions that the last search may be left with, and how many of them it may look at over all its nodes
LEFT = 200_000
LOOKS = 5_000_000


@dataclass(frozen=True)
class Proof:
    """What was proven: a partition, a lower bound, whether they meet, and whether the budget of work was spent.

    Without a partition: none is known, or (where `optimal`) there is none that the constraints admit.
    """

    labels: Labels | None
    lower: float
    optimal: bool
    spent: bool = False


def prove(
    instance: Instance,
    incumbent: Labels,
    budget: int = columns.NODES,
    lines: tuple[Floats, Floats] | None = None,
    masks: list[Masks] | None = None,
    rounds: int = ROUNDS,
) -> Proof:
    """Find the optimum and prove it, as far as the budget of work goes: partial coalitions, and rounds of prices.

    For a caller that proves it at many C: `lines` are the `subset_lines` of the instance, and `masks` collects the
    coalitions that mattered, to start the next proof from.
    """
    known = incumbent if instance.admits(incumbent) else None
    upper = instance.value(incumbent) if known is not None else np.inf
    count = instance.count
    if count <= LISTED:
        return _prove_listed(instance, known, upper, lines or subset_lines(instance), [] if masks is None else masks)
    if count > WIDEST:
        return Proof(known, 0.0, False)
    return _prove_enumerated(instance, known, upper, budget, rounds, [] if masks is None else masks)


def _prove_listed(
    instance: Instance, known: Labels | None, upper: float, lines: tuple[Floats, Floats], masks: list[Masks]
) -> Proof:
    """Prove with the costs of all coalitions listed."""
    slope, intercept = lines
    cost = instance.C * slope + intercept
    count = instance.count
    if count <= SMALL:
        chosen = programme(cost, count, np.inf)
        return _closed(instance, known, chosen, count)
    large = instance.penalty * (1 + instance.min_size)
    pool = Pool(count, large)
    every = np.arange(1 << count, dtype=np.uint64)

    def price(y: Floats) -> tuple[float, Masks, Floats]:
        reduced = cost - spread(y)
        bad = np.flatnonzero(reduced < 0)
        if len(bad) > MANY:
            bad = bad[np.argpartition(reduced[bad], MANY)[:MANY]]
        bad = bad[np.argsort(reduced[bad], kind="stable")]
        holds = (bad[:, None] >> np.arange(count)) & 1  # the worst hundred, and the worst that hold each unit
        picked = np.union1d(bad[:100], bad[holds.argmax(axis=0)] if len(bad) else bad)
        return float(reduced.min()), every[picked], cost[picked]

    start = np.unique(np.concatenate([_nearby(instance, known), *masks]))
    start = start[np.isfinite(cost[start.astype(np.int64)])]
    pool.add(start, cost[start.astype(np.int64)])
    y, lower = column_generation(pool, price, upper, rounds=100)
    masks[:] = [pool.masks[np.unique(pool.basis)], *masks[:7]]
    if upper - lower <= TOLERANCE * max(1.0, upper):
        return Proof(known, upper, True)
    reduced = np.maximum(cost - spread(y), 0.0)
    gap = upper - lower
    left = np.flatnonzero(reduced <= gap) if np.isfinite(gap) else np.flatnonzero(np.isfinite(cost))
    chosen = None
    done = False
    if len(left) <= LEFT:
        done, chosen = _assemble(every[left], reduced[left], count, gap)
    if not done:
        chosen = programme(reduced, count, gap)
    return _closed(instance, known, chosen, count)


def _prove_enumerated(
    instance: Instance, known: Labels | None, upper: float, budget: int, rounds: int, masks: list[Masks]
) -> Proof:
    """Prove with the coalitions that prices leave enumerated by branch and bound."""
    count = instance.count
    pool = Pool(count, instance.penalty * (1 + instance.min_size))
    start = np.unique(np.concatenate([_nearby(instance, known), *masks]))
    pool.add(*columns.costs_of(instance, start))

    def price(y: Floats) -> tuple[float, Masks, Floats] | None:
        quick = columns.improve(instance, pool.masks, y)
        if len(quick[0]):
            return -np.inf, *quick
        return columns.price(instance, y, budget)

    y, lower = column_generation(pool, price, upper, rounds)
    masks[:] = [pool.masks[np.unique(pool.basis)], *masks[:7]]
    if not np.isfinite(lower):
        return Proof(known, 0.0, False)
    gap = upper - lower
    if gap <= TOLERANCE * max(1.0, upper):
        return Proof(known, upper, True)
    if not np.isfinite(gap):
        return Proof(known, lower, False)
    left = columns.enumerate_below(instance, y, gap, budget)
    if left is None or len(left[0]) > LEFT:
        return Proof(known, lower, False)
    found, costs = left
    reduced = np.maximum(costs - unpack(found, count) @ y, 0.0)
    done, chosen = _assemble(found, reduced, count, gap)
    return _closed(instance, known, chosen, count) if done else Proof(known, lower, False)


def _closed(instance: Instance, known: Labels | None, chosen: list[int] | None, count: int) -> Proof:
    """A search that ended: its partition where it is better than the known one, and the optimum either way."""
    best = known
    if chosen is not None:
        labels = np.zeros(count, dtype=np.int64)
        for label, mask in enumerate(chosen):
            labels[[unit for unit in range(count) if mask >> unit & 1]] = label
        if best is None or instance.value(labels) < instance.value(best) - 1e-12 * instance.value(best):
            best = labels
    return Proof(best, np.inf, True) if best is None else Proof(best, instance.value(best), True)


def _nearby(instance: Instance, known: Labels | None) -> Masks:
    """Coalitions to start the prices from: single units, the known partition's, and those one unit away from it."""
    count = instance.count
    singles = np.uint64(1) << np.arange(count, dtype=np.uint64)
    if known is None:
        return singles
    masks = np.array([(singles[known == label]).sum() for label in range(int(known.max()) + 1)], dtype=np.uint64)
    near = np.unique(np.r_[singles, masks, (masks[:, None] ^ singles).ravel()])
    return near[near > 0]


def _assemble(masks: Masks, reduced: Floats, count: int, gap: float) -> tuple[bool, list[int] | None]:
    """The partition into `masks` with the lowest sum of reduced costs below the gap; whether the search ended."""
    order = np.argsort(reduced, kind="stable")
    masks, reduced = masks[order], reduced[order]
    holds = unpack(masks, count).astype(bool)
    best: list[int] | None = None
    limit = gap * (1 - 1e-12)
    looked = 0

    def visit(free: int, rows: Labels, spent: float, chosen: list[int]) -> bool:
        nonlocal best, limit, looked
        looked += len(rows) + 100
        if looked > LOOKS:
            return False
        if free == 0:
            best, limit = list(chosen), spent
            return True
        units = [unit for unit in range(count) if free >> unit & 1]
        unit = units[int(holds[rows][:, units].sum(axis=0).argmin())] if len(rows) else units[0]
        for row in rows[holds[rows, unit]]:
            if spent + reduced[row] >= limit:
                break
            mask = int(masks[row])
            rest = rows[(masks[rows] & masks[row]) == 0]
            if not visit(
                free & ~mask,
                rest[reduced[rest] < limit - spent - reduced[row]],
                spent + reduced[row],
                [*chosen, mask],
            ):
                return False
        return True

    done = visit((1 << count) - 1, np.arange(len(masks)), 0.0, [])
    return done, best
