"""Algorithm 2 for thousands of clients: the matrix is read by rows, in its own precision, and never copied.

Clients are first inserted one by one, each into the best coalition of those before it (the first pass of Algorithm 2,
with the others still to come). For every client k and coalition T the sums
    push_Tk = sum_{i in T} D_ik   and   pull_Tk = sum_{j in T} m_j D_kj
are kept up to date: a client that comes or goes adds or takes one row of the matrix. They price every move at once;
only clients that gain are visited, and joins of whole coalitions come from the same sums. It ends when no move and no
join lowers L.

Where there are so many coalitions that the sums would weigh on memory, one row per visited client is summed instead.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedcollab.coalitions.constraints import Constraints
from fedcollab.coalitions.inputs import Floats, Inputs, Labels, first_appearance
from fedcollab.coalitions.objective import own_sums, terms
from fedcollab.seeds import generator

#: the sums may take this share of the matrix's memory
SHARE = 0.25


Sums = tuple[Floats, Floats]


def search_large(
    inputs: Inputs, constraints: Constraints, C: float, restarts: int, seed: int
) -> tuple[Labels, Sums | None]:
    """The best partition of the clients over the restarts, with its pull and push (N x K) where they were kept."""
    best: tuple[float, Labels, Sums | None] | None = None
    keys = _keys(inputs)
    for restart in range(restarts):
        search = _Search(inputs, constraints, C, keys[generator(seed, "large", restart).permutation(len(keys))])
        labels = first_appearance(search.run())
        value = float(terms(inputs.quantities, labels, own_sums(inputs.matrix, inputs.quantities, labels), C).sum())
        value += search.penalty * search.missing()
        if best is None or value < best[0]:
            best = value, labels, search.kept(labels)
    assert best is not None
    return best[1:]


def _keys(inputs: Inputs) -> Labels:
    """Clients by quantity and by a sum of the bits of their distances: an order that follows them when reordered."""
    bits = np.uint32 if inputs.matrix.dtype.itemsize == 4 else np.uint64
    rows = [np.ascontiguousarray(row).view(bits).sum(dtype=bits) for row in inputs.matrix]
    return np.lexsort((np.array(rows), inputs.quantities))


class _Search:
    """One search. Coalitions are slots 0..K-1: clients n, samples m, pair sum V and cost f; an empty slot has n = 0."""

    def __init__(self, inputs: Inputs, constraints: Constraints, C: float, order: Labels) -> None:
        self.matrix, self.m, self.C = inputs.matrix, inputs.quantities, C
        self.symmetric = inputs.symmetric
        self.min_size, self.max_size = constraints.min_size, constraints.max_size or len(self.m)
        self.unit = constraints.units(len(self.m))
        members = np.split(np.argsort(self.unit, kind="stable"), np.cumsum(np.bincount(self.unit))[:-1])
        self.units = [members[unit] for unit in dict.fromkeys(self.unit[order].tolist())]
        self.clash = constraints.conflicts(np.arange(len(self.m)))
        self.penalty = float((C / np.sqrt(self.m) + 1).sum()) + 1
        self.eps = 1e-12 * self.penalty
        self.labels = np.full(len(self.m), -1, dtype=np.int64)
        self.size, self.mass, self.sums, self.cost = np.zeros(64), np.ones(64), np.zeros(64), np.zeros(64)
        self.count = 0
        self.inserted = False  # sizes count only then: a newcomer would never open a coalition that is still too small
        self.most = int(max(SHARE * self.matrix.nbytes, 2**22) // (16 * len(self.m)))
        self.push: Floats | None = None
        self.pull: Floats | None = None
        self._start_sums()

    def run(self) -> Labels:
        """Insert every client, then move clients and join coalitions until nothing improves."""
        for clients in self.units:
            self._visit(clients)
        self.inserted = True
        while True:
            self._tidy()
            visited = self._gaining() if self.pull is not None else self.units
            moved = [self._visit(clients) for clients in visited]
            if not any(moved) and not (self.pull is not None and self._join()) and not self._rescue():
                return self.labels

    def _rescue(self) -> bool:
        """Let coalitions that are still too small join others as a whole; whether any did."""
        small = np.flatnonzero(self.size[: self.count] < self.min_size)
        moved = [self._visit(np.flatnonzero(self.labels == slot)) for slot in small if self.size[slot] > 0]
        return any(moved)

    def missing(self) -> float:
        """Clients that coalitions lack to the minimum size."""
        sizes = np.bincount(self.labels)
        return float(np.maximum(self.min_size - sizes, 0).sum())

    def kept(self, labels: Labels) -> Sums | None:
        """pull and push as N x K, for the same partition with these labels."""
        if self.pull is None or self.push is None:
            return None
        slot = np.empty(self.count, dtype=np.int64)
        slot[labels] = self.labels
        return self.pull[slot].T, self.push[slot].T

    def _price(self, n: Floats, m: Floats, v: Floats) -> Floats:
        """f(S) of coalitions with n clients, m samples and pair sum v, with the penalty of the minimum size."""
        value = self.C * n / np.sqrt(m) + v / m
        if self.min_size > 1 and self.inserted:
            value += self.penalty * np.maximum(self.min_size - n, 0)
        return value

    def _single(self, n: float, m: float, v: float) -> float:
        return float(self._price(np.array([n]), np.array([m]), np.array([v]))[0])

    def _visit(self, clients: Labels) -> bool:
        """Give a unit to its best coalition, or to one of its own; whether that changed anything."""
        K, n, m = self.count, len(clients), float(self.m[clients].sum())
        here, own, seen = int(self.labels[clients[0]]), self._own(clients), self._seen(clients)
        if here >= 0:
            seen[here] -= 2 * own  # its own pairs are not pairs with others
        joined = self.sums[:K] + seen + own
        after = self._price(self.size[:K] + n, self.mass[:K] + m, joined)
        change = after - self.cost[:K]
        change[self.size[:K] == 0] = np.inf
        if self.max_size < len(self.m):
            change[self.size[:K] + n > self.max_size] = np.inf
        if self.clash is not None:
            foes = self.clash[clients].any(axis=0)
            change[np.bincount(self.labels + 1, weights=foes, minlength=K + 1)[1:] > 0] = np.inf
        alone = self._single(n, m, own)
        stay, rest = np.inf, (0.0, 1.0, 0.0, 0.0)
        if here >= 0:
            if self.size[here] > n:
                size, mass, sums = self.size[here] - n, self.mass[here] - m, self.sums[here] - own - seen[here]
                rest = (size, mass, sums, self._single(size, mass, sums))
            stay = self.cost[here] - rest[3] - self.eps
            change[here] = np.inf
        target = int(change.argmin()) if K else 0
        best = change[target] if K else np.inf
        if stay <= min(best, alone):
            return False
        if alone < best - self.eps or not K:
            target = self._new_slot()
            self._set(target, n, m, own, alone)
        else:
            self._set(target, self.size[target] + n, self.mass[target] + m, joined[target], after[target])
        if here >= 0:
            self._set(here, *rest)
        self.labels[clients] = target
        self._track(clients, here, target)
        return True

    def _seen(self, clients: Labels) -> Floats:
        """Pair costs of a unit with every coalition: sum over its clients k and members j of m_j D_kj + m_k D_jk."""
        K = self.count
        if self.pull is not None and self.push is not None:
            if len(clients) == 1:
                k = clients[0]
                return np.asarray(self.pull[:K, k] + self.push[:K, k] * self.m[k])
            return np.asarray((self.pull[:K, clients] + self.push[:K, clients] * self.m[clients]).sum(axis=1))
        weights = self._row(clients, np.arange(len(self.m)))
        return np.bincount(self.labels + 1, weights=weights, minlength=K + 1)[1:].astype(np.float64)

    def _row(self, clients: Labels, others: Labels) -> Floats:
        total = np.zeros(len(others))
        for k in clients:
            row = self.matrix[k].take(others)
            column = row if self.symmetric else self.matrix[:, k].take(others)
            total += row * self.m[others] + column * self.m[k]
        return total

    def _own(self, clients: Labels) -> float:
        """w of a unit: the pair costs inside it."""
        return 0.0 if len(clients) == 1 else float(self._row(clients, clients).sum()) / 2

    def _new_slot(self) -> int:
        if self.count == len(self.size):
            more = np.zeros(self.count)
            self.size, self.sums, self.cost = (np.r_[array, more] for array in (self.size, self.sums, self.cost))
            self.mass = np.r_[self.mass, more + 1]
        self.count += 1
        return self.count - 1

    def _set(self, slot: int, n: float, m: float, v: float, f: float) -> None:
        self.size[slot], self.mass[slot], self.sums[slot], self.cost[slot] = n, m, v, f

    def _start_sums(self) -> None:
        """Room for as many coalitions as may be; what is never written takes no memory."""
        if self.most > 0:
            self.push, self.pull = np.zeros((self.most, len(self.m))), np.zeros((self.most, len(self.m)))

    def _track(self, clients: Labels, source: int, target: int) -> None:
        """Bring the sums up to date, or give them up when there are too many coalitions for them."""
        if self.pull is None or self.push is None:
            return
        if target >= self.most:
            self.push = self.pull = None
            return
        for k in clients:
            row = self.matrix[k]
            weighted = (row if self.symmetric else self.matrix[:, k]) * self.m[k]
            self.push[target] += row
            self.pull[target] += weighted
            if source >= 0:
                self.push[source] -= row
                self.pull[source] -= weighted

    def _tidy(self) -> None:
        """Drop empty slots, compute every coalition's numbers anew, and build the sums where they fit."""
        slots, self.labels = np.unique(self.labels, return_inverse=True)
        before, self.count = self.count, len(slots)
        own = own_sums(self.matrix, self.m, self.labels)
        self.size = np.bincount(self.labels).astype(np.float64)
        self.mass = np.bincount(self.labels, weights=self.m).astype(np.float64)
        self.sums = np.bincount(self.labels, weights=own).astype(np.float64)
        self.cost = self._price(self.size, self.mass, self.sums)
        if self.pull is not None and self.push is not None:
            for table in (self.push, self.pull):
                for new, slot in enumerate(slots):  # in rising order, new <= slot: nothing is overwritten unread
                    if new != slot:
                        table[new] = table[slot]
                table[self.count : before] = 0
        elif self.count <= self.most // 2:
            self._start_sums()
            members = np.split(np.argsort(self.labels, kind="stable"), self.size.cumsum()[:-1].astype(np.int64))
            for label, clients in enumerate(members):
                self._track(clients, -1, label)

    def _gaining(self) -> list[Labels]:
        """Units that may gain by moving, in the order of the search (for a group that must stay together: always)."""
        assert self.push is not None
        assert self.pull is not None
        N, here = len(self.m), self.labels
        every = np.arange(N)
        seen = self.pull[here, every] + self.push[here, every] * self.m
        left = self.size[here] - 1
        mass = np.where(left > 0, self.mass[here] - self.m, 1.0)
        stay = self.cost[here] - np.where(left > 0, self._price(np.maximum(left, 1), mass, self.sums[here] - seen), 0.0)
        best = self._price(np.ones(N), self.m, np.zeros(N))
        for slot in range(self.count):
            joined = self.sums[slot] + self.pull[slot] + self.push[slot] * self.m
            change = self._price(np.full(N, self.size[slot] + 1), self.mass[slot] + self.m, joined) - self.cost[slot]
            change[here == slot] = np.inf
            np.minimum(best, change, out=best)
        single = np.bincount(self.unit)[self.unit] == 1
        wanted = np.zeros(int(self.unit.max()) + 1, dtype=bool)
        wanted[self.unit[(best < stay - self.eps) | ~single]] = True
        return [clients for clients in self.units if wanted[self.unit[clients[0]]]]

    def _join(self) -> bool:
        """Join the two coalitions that gain most, as long as any two gain."""
        assert self.push is not None
        assert self.pull is not None
        K = self.count
        across = np.stack([np.bincount(self.labels, weights=row, minlength=K) for row in self.pull[:K]])
        across = across + across.T
        foes: NDArray[np.float32] | None = None
        if self.clash is not None:
            member = np.zeros((len(self.m), K), dtype=np.float32)
            member[np.arange(len(self.m)), self.labels] = 1
            foes = np.asarray(member.T @ (self.clash @ member), dtype=np.float32)
        joined = False
        while True:
            size = self.size[:, None] + self.size
            change = self._price(size, self.mass[:, None] + self.mass, self.sums[:, None] + self.sums + across)
            change -= self.cost[:, None] + self.cost
            empty = self.size == 0
            change[empty[:, None] | empty | np.eye(K, dtype=bool) | (size > self.max_size)] = np.inf
            if foes is not None:
                change[foes > 0] = np.inf
            a, b = divmod(int(change.argmin()), K)
            if not change[a, b] < -self.eps:
                return joined
            joined = True
            self.labels[self.labels == b] = a
            v = self.sums[a] + self.sums[b] + across[a, b]
            self._set(a, size[a, b], self.mass[a] + self.mass[b], v, change[a, b] + self.cost[a] + self.cost[b])
            self._set(b, 0.0, 1.0, 0.0, 0.0)
            for table in (self.push, self.pull):
                table[a] += table[b]
            for square in (across, foes):
                if square is not None:
                    square[a] += square[b]
                    square[:, a] += square[:, b]
