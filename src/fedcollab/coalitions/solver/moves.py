"""Algorithm 2's moves from a given partition: one unit at a time, to where L falls most, until no move helps.

For every coalition T and unit u the pair costs
    seen_Tu = sum_{v in T} B_uv
are kept up to date (a unit that comes or goes adds or takes one row of pair costs). They price all moves at once; only
units that gain are visited. Where no single move helps, a coalition is dissolved if its members, each given to the
best of the other coalitions, cost less there than together; and whole coalitions are joined. Where so many coalitions
are left that the table would weigh on memory, the pair costs of each visited unit are summed when it is visited.
"""

from __future__ import annotations

import numpy as np

from fedcollab.coalitions.inputs import Floats, Labels, first_appearance
from fedcollab.coalitions.solver.instance import Problem

#: numbers that are priced at once
CHUNK = 2**16


def descend(problem: Problem, labels: Labels) -> Labels:
    """Return the local optimum that moves reach from this partition of the units, labels in order of appearance."""
    return Descent(problem, labels).run()


class Descent:
    """Coalitions are slots: clients, samples, pair sum and cost of each; an empty slot has no clients and costs 0."""

    def __init__(self, problem: Problem, labels: Labels) -> None:
        self.problem = problem
        self.units = np.arange(problem.count)
        self.labels = np.unique(labels, return_inverse=True)[1].astype(np.int64)
        self.slots = int(self.labels.max()) + 2  # the last one is empty: a unit may always leave to be alone
        self.table: Floats | None = None
        if 16 * self.slots * problem.count <= problem.room:
            self.table, self.prices = np.zeros((self.slots, problem.count)), np.empty((self.slots, problem.count))
            for label, row in zip(self.labels, problem.rows(), strict=True):
                self.table[label] += row
        self.changed = np.ones(self.slots, dtype=bool)
        self._recompute()
        self.eps = 1e-12 * max(1.0, float(self.cost.sum()))

    @property
    def score(self) -> float:
        """L of the partition, with the penalty for coalitions under the minimum size."""
        return float(self.cost.sum())

    def run(self) -> Labels:
        """Move the units that gain, most first, until none does; then dissolve and join coalitions, and start again."""
        while True:
            join = self._least_join()
            moved = sum([self._visit(unit) for unit in self._gaining(join)])
            if not moved and (join is None or not (self._dissolve(join) or self._join())):
                return first_appearance(self.labels)
            self._recompute()

    def together(self) -> float:
        """Return L with everyone in one coalition."""
        problem = self.problem
        if self.table is None:
            return problem.value(np.zeros(problem.count, dtype=np.int64))
        sums = problem.own.sum() + self.table.sum() / 2
        return float(problem.cost(problem.sizes.sum(), problem.masses.sum(), sums))

    def relabel(self, labels: Labels) -> None:
        """Move units until the partition is this one; a coalition keeps the slot that holds most of it."""
        free = np.ones(self.slots, dtype=bool)
        order = np.argsort(labels, kind="stable")
        for members in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
            free = np.append(free, np.ones(self.slots - len(free), dtype=bool))
            held = np.where(free, np.bincount(self.labels[members], minlength=self.slots), 0)
            slot = int(held.argmax()) if held.any() else int(np.flatnonzero(free & (self.size == 0))[0])
            free[slot] = False
            for unit in members[self.labels[members] != slot]:
                self._move(unit, slot)
        self._recompute()

    def _recompute(self) -> None:
        """Compute sizes, samples, pair sums and costs of all slots from the labels."""
        problem, labels = self.problem, self.labels
        self.size, self.mass = (
            np.bincount(labels, weights=values, minlength=self.slots).astype(np.float64)
            for values in (problem.sizes, problem.masses)
        )
        if self.table is not None:
            seen = problem.own + self.table[labels, self.units] / 2
            self.sums = np.bincount(labels, weights=seen, minlength=self.slots).astype(np.float64)
        else:
            found = problem.sums(labels)
            self.sums = np.r_[found, np.zeros(self.slots - len(found))]
        self.cost = np.zeros(self.slots)
        used = self.size > 0
        self.cost[used] = problem.cost(self.size[used], self.mass[used], self.sums[used])

    def _least_join(self) -> Floats | None:
        """Return what each unit costs in the best coalition other than its own (None without the table)."""
        problem, table = self.problem, self.table
        if table is None:
            return None
        changed = np.flatnonzero(self.changed)
        for slots in np.array_split(changed, 1 + len(changed) * problem.count // CHUNK):
            size = self.size[slots, None] + problem.sizes
            sums = self.sums[slots, None] + table[slots] + problem.own
            price = problem.cost(size, self.mass[slots, None] + problem.masses, sums) - self.cost[slots, None]
            if problem.max_size is not None:
                price[size > problem.max_size] = np.inf
            if problem.clash is not None:
                for at, slot in enumerate(slots):
                    price[at, problem.clash[self.labels == slot].any(axis=0)] = np.inf
            self.prices[slots] = price
        self.prices[self.labels, self.units] = np.inf  # its own coalition is no other
        self.changed[:] = False
        return np.asarray(self.prices.min(axis=0))

    def _gaining(self, join: Floats | None) -> Labels:
        """Return the units that gain by a move, those that gain most first (without the table: all units)."""
        problem, here = self.problem, self.labels
        if join is None or self.table is None:
            return self.units
        left = self.size[here] - problem.sizes
        mass = np.where(left > 0, self.mass[here] - problem.masses, 1.0)
        rest = problem.cost(left, mass, self.sums[here] - problem.own - self.table[here, self.units])
        gain = join - (self.cost[here] - np.where(left > 0, rest, 0.0))
        return np.argsort(gain, kind="stable")[: int((gain < -self.eps).sum())]

    def _visit(self, unit: int) -> bool:
        """Move a unit to its best coalition, or to one of its own, if that lowers L; return whether it does."""
        target, change = self._best(unit)
        if change >= -self.eps:
            return False
        self._move(unit, target)
        return True

    def _dissolve(self, join: Floats) -> bool:
        """Give the members of a coalition to the best others where that lowers L; return whether any was dissolved."""
        gain = np.bincount(self.labels, weights=join, minlength=self.slots) - self.cost
        dissolved = False
        for slot in np.argsort(gain, kind="stable")[: int((gain < -self.eps).sum())].tolist():
            members = np.flatnonzero(self.labels == slot)
            total = 0.0
            for unit in members.tolist() if len(members) > 1 else ():
                target, change = self._best(unit)
                total += change
                if total == np.inf:
                    break
                self._move(unit, target)
            if total < -self.eps:
                dissolved = True
            else:
                for unit in members[self.labels[members] != slot]:
                    self._move(unit, slot)
        return dissolved

    def _join(self) -> bool:
        """Join whole coalitions where that lowers L; return whether any were joined."""
        used = np.flatnonzero(self.size)
        if self.table is None or len(used) in (1, self.problem.count):
            return False
        across = np.empty((len(used), len(used)))
        for at, slot in enumerate(used):
            across[at] = np.bincount(self.labels, weights=self.table[slot])[used]
        size, mass, sums, cost = self.size[used], self.mass[used], self.sums[used], self.cost[used]
        change = self.problem.cost(size[:, None] + size, mass[:, None] + mass, sums[:, None] + sums + across)
        change -= cost[:, None] + cost
        np.fill_diagonal(change, np.inf)
        if change.min() >= -self.eps:
            return False
        inner = across / 2
        np.fill_diagonal(inner, sums)
        small = self.problem.contracted(np.searchsorted(used, self.labels), inner)
        whole = descend(small, np.arange(len(used)))
        for slot, group in zip(used, whole, strict=True):
            target = used[int(np.flatnonzero(whole == group)[0])]
            if target != slot:
                self.labels[self.labels == slot] = target
                self.table[target] += self.table[slot]
                self.table[slot] = 0.0
                self.changed[[slot, target]] = True
        return int(whole.max()) + 1 < len(used)

    def _seen(self, unit: int) -> Floats:
        """Return the pair costs of a unit with every slot."""
        if self.table is not None:
            return self.table[:, unit]
        return np.bincount(self.labels, weights=self.problem.row(unit), minlength=self.slots).astype(np.float64)

    def _best(self, unit: int) -> tuple[int, float]:
        """Return the best other slot for a unit, and how L changes when it goes there."""
        problem, here, seen = self.problem, int(self.labels[unit]), self._seen(unit)
        size, sums = self.size + problem.sizes[unit], self.sums + seen + problem.own[unit]
        change = problem.cost(size, self.mass + problem.masses[unit], sums) - self.cost
        if problem.max_size is not None:
            change[size > problem.max_size] = np.inf
        if problem.clash is not None:
            change[self.labels[problem.clash[unit]]] = np.inf
        change[here] = np.inf
        target = int(change.argmin())
        rest = self._price(
            self.size[here] - problem.sizes[unit],
            self.mass[here] - problem.masses[unit],
            self.sums[here] - problem.own[unit] - seen[here],
        )
        return target, float(change[target]) + rest - float(self.cost[here])

    def _price(self, size: float, mass: float, sums: float) -> float:
        """Return the cost f of one slot; an empty one costs nothing."""
        return float(self.problem.cost(size, mass, sums)) if size > 0 else 0.0

    def _move(self, unit: int, target: int) -> None:
        """Put a unit into another slot and bring everything up to date."""
        problem, here, seen = self.problem, int(self.labels[unit]), self._seen(unit)
        for slot, sign, pairs in ((target, 1, seen[target]), (here, -1, seen[here])):
            self.size[slot] += sign * problem.sizes[unit]
            self.mass[slot] += sign * problem.masses[unit]
            self.sums[slot] += sign * (problem.own[unit] + pairs)
            self.cost[slot] = self._price(self.size[slot], self.mass[slot], self.sums[slot])
        self.labels[unit] = target
        self.changed[[here, target]] = True
        if self.table is not None:
            row = problem.row(unit)
            self.table[target] += row
            self.table[here] -= row
        if self.size[here] == 0:
            self.mass[here] = self.sums[here] = 0.0
            if self.table is not None:
                self.table[here] = 0.0
        elif self.size.all():  # one slot is always empty
            more = 1 + self.slots // 8
            self.slots += more
            self.size, self.mass, self.sums, self.cost, self.changed = (
                np.append(values, np.zeros(more, dtype=values.dtype))
                for values in (self.size, self.mass, self.sums, self.cost, self.changed)
            )
            self.changed[-more:] = True
            if self.table is not None:
                self.table, self.prices = (
                    np.concatenate([square, np.zeros((more, problem.count))]) for square in (self.table, self.prices)
                )
