"""The search for many clients: merge, move, refine as Leiden does for communities, and combine what was found.

1. *Merge* from all-local (merge.py). Greedy merging at a smaller C joins like with like before quantities matter, so
   trees are grown at C, C/2, C/4 and at random C; in each the best partition at the C that was asked for is taken.
2. *Move* single units (moves.py), then *refine*: every coalition is cut into the blocks of a finer partition of the
   same tree, and blocks move as if they were units; then whole coalitions join. Until nothing lowers L.
3. *Combine*: where two partitions agree on which units belong together, these are contracted, and the much smaller
   problem is searched again, starting from the better of the two (Traag, Waltman and van Eck 2019 for 2; partition
   crossover, Whitley, Hains and Howe 2009, for 3).

Above `DENSE` units a random sample is searched first. A coalition of the whole has 1 / q times as many clients and
samples as its part in a sample of share q, so that C sqrt(q) in the sample stands for C in the whole. Every other unit
is given to the coalition where it costs least, and moves follow. Then every coalition is cut into blocks by merging its
units at a smaller C, and the blocks are searched as units: that parts groups which the sample was too small to tell
apart, and finds those that it missed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcollab.coalitions.inputs import Floats, Labels, first_appearance
from fedcollab.coalitions.solver.instance import FEW, Instance, Problem, RowInstance
from fedcollab.coalitions.solver.local import search
from fedcollab.coalitions.solver.merge import merge_tree
from fedcollab.coalitions.solver.moves import Descent, descend
from fedcollab.seeds import generator

#: with "auto": trees times units squared, and (above `RESTARTED` units) restarts times units cubed
TREE_WORK, RESTART_WORK, RESTARTED = 1_000_000, 5_000_000, 64
#: up to this many units all pair costs are held in memory; up to so many they are merged, one pair at a time
DENSE, WHOLE = 1200, 3000
#: the search ends when so many trees in a row (or half of them) brought nothing better
PATIENCE = 4
#: units that are searched at once where there are more
SAMPLE = 1200
#: how often coalitions are cut into blocks and put together anew
REFINED = 2
#: and again only after so large a gain, as a share of L
ENOUGH = 1e-3
#: where a partition is cut into blocks: at these shares of C, the first that gives no more than so many blocks
SHARES, BLOCKS = (0.25, 0.5, 1.0), 1500


def search_best(problem: Problem, method: str, restarts: int, seed: int) -> Labels:
    """Return the best partition of the units that the searches find, never worse than greedy merging."""
    count = problem.count
    trees = min(restarts, int(np.clip(TREE_WORK // (count * count), 3, 8)) if method == "auto" else restarts)
    if not isinstance(problem, Instance) or count > FEW:
        return search_levels(problem, trees, seed)
    merged = search_levels(problem, min(trees, 8), seed)
    if method == "auto" and count > RESTARTED:
        restarts = min(restarts, RESTART_WORK // count**3)
    return search(problem, restarts, seed, (merged,))


def search_levels(problem: Problem, trees: int, seed: int) -> Labels:
    """Return the best partition of the units that at most so many trees lead to."""
    if isinstance(problem, RowInstance) and problem.count > WHOLE:
        return _by_sample(problem, trees, seed)
    rng = generator(seed, "levels", problem.count)
    best, idle = np.arange(problem.count), 0
    for number in range(trees):
        factor = [1.0, 0.5, 0.25][number] if number < 3 else float(np.exp(rng.uniform(np.log(0.1), np.log(1.5))))
        tree = merge_tree(problem.at(factor * problem.C))
        finer = [tree.best(problem.at(share * problem.C)) for share in (0.5, 0.25)]
        found = polish(problem, tree.best(problem), finer)
        if number:
            found = combine(problem, best, found)
        better = number == 0 or score(problem, found) < score(problem, best) * (1 - 1e-12)
        best, idle = (found, 0) if better else (best, idle + 1)
        if idle == min(max(2, trees // 2), PATIENCE):
            break
    return repair(problem, best)


def score(problem: Problem, labels: Labels) -> float:
    """Return L of a partition, with the penalty for coalitions under the minimum size."""
    value = problem.value(labels)
    return value + problem.penalty * problem.missing(labels) if problem.min_size > 1 else value


def polish(problem: Problem, labels: Labels, finer: Sequence[Labels]) -> Labels:
    """Move units, then the blocks of each finer partition, then whole coalitions, until nothing lowers L."""
    labels = descend(problem, labels)
    idle, turn = 0, 0
    while idle < len(finer):
        blocks = meet(labels, finer[turn % len(finer)])
        if not _few(problem, blocks):
            idle, turn = idle + 1, turn + 1
            continue
        small = problem.contract(blocks)
        start = np.zeros(small.count, dtype=np.int64)
        start[blocks] = labels
        after = first_appearance(descend(small, start)[blocks])
        turn += 1
        if np.array_equal(after, labels):
            idle += 1
        else:
            labels, idle = descend(problem, after), 0
    return labels


def combine(problem: Problem, first: Labels, second: Labels) -> Labels:
    """Return the best of two partitions and of what is found when their common blocks are the units."""
    blocks = meet(first, second)
    if not _few(problem, blocks):
        return min(first, second, key=lambda each: score(problem, each))
    return descend(problem, regroup(problem, blocks, (first, second)))


def _few(problem: Problem, blocks: Labels) -> bool:
    """Return whether the pair costs of these blocks may be held in memory, as those of the problem are."""
    return isinstance(problem, Instance) or bool(blocks.max() < DENSE)


def regroup(problem: Problem, blocks: Labels, starts: Sequence[Labels]) -> Labels:
    """Search with these blocks as units, from the best of the partitions given and from merging."""
    small = problem.contract(blocks)
    given = [np.zeros(small.count, dtype=np.int64) for _ in starts]
    for start, labels in zip(given, starts, strict=True):
        start[blocks] = labels
    tree = merge_tree(small)
    finer = [tree.best(small.at(0.5 * problem.C))]
    found = [
        polish(small, start, finer) for start in (min(given, key=lambda each: score(small, each)), tree.best(small))
    ]
    return first_appearance(min(found, key=lambda each: score(small, each))[blocks])


def meet(first: Labels, second: Labels) -> Labels:
    """Return the blocks of units that are together in both partitions."""
    blocks: Labels = np.unique(first * (int(second.max()) + 1) + second, return_inverse=True)[1].astype(np.int64)
    return blocks


def _by_sample(problem: RowInstance, trees: int, seed: int) -> Labels:
    """Search a sample of the units, give every other unit its place, then cut coalitions and put them together anew."""
    count = problem.count
    order = problem.order()
    sample = np.sort(generator(seed, "sample", count).permutation(count)[:SAMPLE])
    share = SAMPLE / count
    inner = search_levels(problem.subset(order[sample], share), min(trees, 2), seed)
    labels = _extend(problem, order, sample, inner, share)
    descent = Descent(problem, labels)
    labels = descent.run()
    cuts: dict[bytes, Labels] = {}
    for _ in range(REFINED):
        best, refined = descent.score, regroup(problem, _split(problem, labels, cuts), [labels])
        if np.array_equal(refined, labels):
            break
        descent.relabel(refined)
        refined = descent.run()
        labels = refined if descent.score < best else labels
        if not descent.score < best * (1 - ENOUGH):
            break
    labels = repair(problem, labels)
    alone, everyone = np.arange(count), np.zeros(count, dtype=np.int64)
    values = [score(problem, labels), score(problem, alone), descent.together()]
    found = [each for each, _ in sorted(zip([labels, alone, everyone], values, strict=True), key=lambda x: x[1])]
    return next((each for each in found if problem.admits(each)), labels)


def _split(problem: RowInstance, labels: Labels, cuts: dict[bytes, Labels]) -> Labels:
    """Cut every coalition into blocks, by merging its units at a smaller C: as fine as `BLOCKS` blocks allow.

    `cuts` remembers how coalitions were cut.
    """
    blocks = np.zeros((len(SHARES), problem.count), dtype=np.int64)
    order = np.argsort(labels, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        key = members.tobytes()
        if key not in cuts:
            cuts[key] = np.zeros((len(SHARES), len(members)), dtype=np.int64)
            if 1 < len(members) <= SAMPLE:
                inner = problem.subset(members)
                tree = merge_tree(inner.at(SHARES[0] * problem.C))
                cuts[key] = np.stack([tree.best(inner.at(share * problem.C)) for share in SHARES])
        blocks[:, members] = members[0] * 2 * problem.count + cuts[key]  # no two coalitions share a block
    tidy = [first_appearance(each) for each in blocks]
    return next((each for each in tidy if each.max() < BLOCKS), tidy[-1])


def _extend(problem: Problem, order: Labels, sample: Labels, found: Labels, share: float) -> Labels:
    """Give every unit outside the sample to the coalition where it costs least, or to one of its own.

    A coalition of the sample stands for one with 1 / share times as many clients and samples.
    """
    inside = order[sample]
    size, mass = (np.bincount(found, weights=values[inside]) / share for values in (problem.sizes, problem.masses))
    seen = np.zeros((len(size), problem.count))
    for unit, label in zip(inside, found, strict=True):
        seen[label] += problem.row(unit) / share
    sums = np.bincount(found, weights=problem.own[inside] / share + seen[found, inside] / (2 * share))
    cost = problem.cost(size, mass, sums)
    labels = np.full(problem.count, -1, dtype=np.int64)
    labels[inside] = found
    held = np.bincount(found, weights=problem.sizes[inside])
    alone = problem.cost(problem.sizes, problem.masses, problem.own)
    top = len(size)
    rest = order[np.setdiff1d(np.arange(problem.count), sample)]
    for units in np.array_split(rest, max(1, len(rest) // 256)):
        total = sums[:, None] + seen[:, units] + problem.own[units]
        change = problem.cost(size[:, None] + problem.sizes[units], mass[:, None] + problem.masses[units], total)
        change -= cost[:, None]
        for unit, price in zip(units, change.T, strict=True):
            if problem.max_size is not None:
                price[held + problem.sizes[unit] > problem.max_size] = np.inf
            if problem.clash is not None:
                foes = labels[problem.clash[unit]]
                price[foes[(foes >= 0) & (foes < len(size))]] = np.inf
            labels[unit] = best = int(price.argmin())
            if price[best] > alone[unit]:
                labels[unit] = top
                top += 1
            else:
                held[best] += problem.sizes[unit]
    return labels


def repair(problem: Problem, labels: Labels) -> Labels:
    """Dissolve or fill coalitions that are under the minimum size, as far as the other constraints let it."""
    hopeless: set[int] = set()
    while problem.min_size > 1:
        sizes = np.bincount(labels, weights=problem.sizes)
        small = [slot for slot in np.argsort(sizes) if 0 < sizes[slot] < problem.min_size and slot not in hopeless]
        if not small:
            break
        tried = [_dissolve(problem, labels, small[0]), _fill(problem, labels, small[0])]
        fine = [found for found in tried if found is not None]
        if not fine:
            hopeless.add(small[0])
            continue
        labels = min(fine, key=lambda found: score(problem, found))
        if len(fine) and not any(0 < size < problem.min_size for size in np.bincount(labels, weights=problem.sizes)):
            labels = descend(problem, labels)
    return labels


def _dissolve(problem: Problem, labels: Labels, slot: int) -> Labels | None:
    """Give each unit of a coalition to the nearest one that has room for it."""
    labels = labels.copy()
    sizes = np.bincount(labels, weights=problem.sizes)
    for unit in np.flatnonzero(labels == slot).tolist():
        distance = _distances(problem, labels, unit)
        distance[(sizes + problem.sizes[unit] > problem.largest) | (sizes == 0)] = np.inf
        distance[slot] = np.inf
        target = int(distance.argmin())
        if not np.isfinite(distance[target]):
            return None
        sizes[target] += problem.sizes[unit]
        labels[unit] = target
    return labels


def _fill(problem: Problem, labels: Labels, slot: int) -> Labels | None:
    """Take the nearest units of coalitions that can spare them, until the coalition is large enough."""
    labels = labels.copy()
    sizes = np.bincount(labels, weights=problem.sizes)
    while sizes[slot] < problem.min_size:
        members = np.flatnonzero(labels == slot)
        total = np.sum([problem.row(unit) for unit in members.tolist()], axis=0)
        distance = total / (sizes[slot] * problem.masses + problem.masses[members].sum() * problem.sizes)
        spare = sizes[labels] - problem.sizes
        barred = (labels == slot) | (spare < problem.min_size) | (sizes[slot] + problem.sizes > problem.largest)
        if problem.clash is not None:
            barred |= problem.clash[members].any(axis=0)
        distance[barred] = np.inf
        unit = int(distance.argmin())
        if barred[unit]:
            return None
        sizes[labels[unit]] -= problem.sizes[unit]
        sizes[slot] += problem.sizes[unit]
        labels[unit] = slot
    return labels


def _distances(problem: Problem, labels: Labels, unit: int) -> Floats:
    """Return the mean distance between a unit and every coalition; infinite where they clash."""
    weights = problem.sizes * problem.masses[unit] + problem.sizes[unit] * problem.masses
    total, weight = np.bincount(labels, weights=problem.row(unit)), np.bincount(labels, weights=weights)
    distance: Floats = total / np.maximum(weight, 1e-300)
    if problem.clash is not None:
        distance[labels[problem.clash[unit]]] = np.inf
    return distance
