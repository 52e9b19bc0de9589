"""Greedy merging from all-local, and the best partition in the tree that it leaves.

Joining coalitions A and B changes L by f(A + B) - f(A) - f(B). The pair with the lowest change is joined, then the
next, until there is one coalition left (or no pair may be joined). Every coalition that was ever made is a node of a
binary tree. Among the partitions into nodes of the tree the best is found from the leaves up,
    best(node) = min( f(node), best(left) + best(right) ),
so the answer is never worse than everyone alone (the leaves), everyone together (the root), or greedy merging that
stops where no pair gains (nodes as well).

Each coalition remembers its best partner. When that partner is merged away, the old change stays as a lower bound of
the new one and partners are searched again only when the coalition comes first (Muellner 2011). Up to `KEPT` units all
changes are kept in a table; beyond, they are computed when they are needed, and the pair costs are the only table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcollab.coalitions.inputs import Floats, Labels
from fedcollab.coalitions.solver.instance import Problem

#: numbers that are priced at once
CHUNK = 2**14
#: up to this many units the changes of all pairs are kept
KEPT = 1500


@dataclass(frozen=True)
class Tree:
    """Coalitions made by merging: the units come first, then every merged coalition with its two parts."""

    sizes: Floats
    masses: Floats
    sums: Floats
    parts: Labels

    def best(self, problem: Problem) -> Labels:
        """The best partition of the units into nodes of the tree, at the C and with the limits of the problem."""
        count = problem.count
        cost = problem.cost(self.sizes, self.masses, self.sums)
        least = cost.tolist()
        kept = [True] * len(least)
        for node, (left, right) in enumerate(self.parts.tolist(), count):
            apart = least[left] + least[right]
            if apart < least[node]:
                least[node], kept[node] = apart, False
        label = np.full(len(least), -1, dtype=np.int64)
        for node in range(len(least) - 1, -1, -1):
            if label[node] < 0 and kept[node]:
                label[node] = node
            if node >= count and label[node] >= 0:
                label[self.parts[node - count]] = label[node]
        return label[:count]


def merge_tree(problem: Problem) -> Tree:
    """Merge the units of the problem greedily at its C, until nothing more may be joined."""
    count = problem.count
    n, m, v, pairs = problem.sizes.copy(), problem.masses.copy(), problem.own.copy(), problem.table()
    clash = None if problem.clash is None else problem.clash.copy()
    f = problem.cost(n, m, v)
    node = np.arange(count)
    made = np.zeros((3, 2 * count - 1))
    made[:, :count] = n, m, v
    parts: list[tuple[int, int]] = []

    def changes(rows: slice) -> Floats:
        """Return how L changes when each of these slots is joined with each other slot."""
        size = n[rows, None] + n
        value: Floats = problem.cost(size, m[rows, None] + m, (v[rows, None] + pairs[rows]) + v)
        value -= f + f[rows, None]
        np.fill_diagonal(value[:, rows], np.inf)
        if clash is not None:
            value[clash[rows]] = np.inf
        if problem.max_size is not None:
            value[size > problem.largest] = np.inf
        return value

    partner, change = np.empty(count, dtype=np.int64), np.empty(count)
    table = np.empty((count, count)) if count <= KEPT else None
    several = 1 + CHUNK // count
    for start in range(0, count, several):
        part = slice(start, start + several)
        found = changes(part)
        partner[part], change[part] = found.argmin(axis=1), found.min(axis=1)
        if table is not None:
            table[part] = found
    stale = np.zeros(count, dtype=bool)
    while len(parts) < count - 1:
        a = int(change.argmin())
        if stale[a]:
            row = changes(slice(a, a + 1))[0] if table is None else table[a]
            partner[a] = row.argmin()
            change[a], stale[a] = row[partner[a]], False
            continue
        if change[a] == np.inf:
            break
        b = int(partner[a])
        n[a], m[a], v[a] = n[a] + n[b], m[a] + m[b], v[a] + v[b] + pairs[a, b]
        f[a] = problem.cost(n[a], m[a], v[a])
        made[:, count + len(parts)] = n[a], m[a], v[a]
        parts.append((int(node[a]), int(node[b])))
        node[a] = count + len(parts) - 1
        pairs[a] += pairs[b]
        pairs[:, a] = pairs[a]
        if clash is not None:
            clash[a] |= clash[b]
            clash[:, a] = clash[a]
        n[b], m[b], f[b] = 0.0, 1.0, -np.inf  # an empty slot: joining it would cost infinitely much
        row = changes(slice(a, a + 1))[0]
        if table is not None:
            table[a], table[:, a], table[:, b] = row, row, np.inf
        change[b] = np.inf
        stale |= (partner == a) | (partner == b)
        closer = row < change
        change[closer], partner[closer], stale[closer] = row[closer], a, False
        partner[a] = row.argmin()
        change[a], stale[a], stale[b] = row[partner[a]], False, False
        if count - len(parts) == len(n) // 2 >= 32:  # half of the slots are empty: go on with the others
            kept = np.flatnonzero(n > 0)
            rank = np.zeros(len(n), dtype=np.int64)
            rank[kept] = np.arange(len(kept))
            n, m, v, f, change = (values[kept] for values in (n, m, v, f, change))
            node, partner, stale = node[kept], rank[partner][kept], stale[kept]
            pairs = pairs[np.ix_(kept, kept)]
            table = None if table is None else table[np.ix_(kept, kept)]
            clash = None if clash is None else clash[np.ix_(kept, kept)]
    sizes, masses, sums = made[:, : count + len(parts)]
    return Tree(sizes, masses, sums, np.array(parts, dtype=np.int64).reshape(-1, 2))
