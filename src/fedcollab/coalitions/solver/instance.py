"""The problem as the solvers see it: units with sizes, masses and pair costs.

A unit is a client, or a group of clients that must stay together. The cost of a coalition S of units is
    f(S) = C n_S / sqrt(m_S) + V_S / m_S,   n_S = sum n_u,  m_S = sum m_u,  V_S = sum_u w_u + sum_{u<v} B_uv
with n_u clients, m_u samples, w_u = sum_{i,j in u} m_j D_ij and B_uv = sum_{i in u, j in v} (m_j D_ij + m_i D_ji).
f is additive in everything a move changes, and an asymmetric D becomes the symmetric B.

`Instance` holds B in memory, with its units in a canonical order (by quantity, then by what they see of the others), so
that the searches, their random permutations and their ties do not depend on the order in which clients are given. Only
clients that look the same to these keys (equal quantity and equal distance profiles) are told apart by position.
`RowInstance` is for thousands of clients: it reads rows of the matrix when they are needed and never copies it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedcollab.coalitions.constraints import Constraints, clashing
from fedcollab.coalitions.inputs import Floats, Inputs, Labels, first_appearance
from fedcollab.coalitions.objective import BLOCK, own_sums

#: rows and columns that are added to their transpose at once
TILE = 512
#: two objectives closer than this, relatively, count as equal; an answer is called optimal within it
TOLERANCE = 1e-9
#: bytes that tables beside a small matrix may take
ALLOWANCE = 40e6
#: up to this many units the canonical order looks at every pair cost twice; beyond it, once
FEW = 400


@dataclass(frozen=True)
class Problem(ABC):
    """U units with their sizes, masses and inner pair sums, and what coalitions are allowed.

    `unit[i]` is the unit of client i.
    """

    sizes: Floats
    masses: Floats
    own: Floats
    clash: NDArray[np.bool_] | None
    min_size: int
    max_size: int | None
    C: float
    unit: Labels

    @abstractmethod
    def row(self, unit: int) -> Floats:
        """Return the pair costs of one unit with every unit; 0 with itself."""

    @abstractmethod
    def rows(self) -> Iterator[Floats]:
        """Return the pair costs of every unit, one after the other."""

    @abstractmethod
    def table(self) -> NDArray[np.floating[Any]]:
        """Return a copy of all pair costs."""

    @abstractmethod
    def sums(self, labels: Labels) -> Floats:
        """Return V of every coalition of a partition of the units."""

    @abstractmethod
    def contract(self, blocks: Labels) -> Instance:
        """Return the same problem with every block of units (labels 0..K-1) contracted to one unit."""

    @property
    @abstractmethod
    def room(self) -> float:
        """Bytes that the tables of a search may take beside the matrix."""

    @property
    def count(self) -> int:
        """The number of units, must-link groups counted once."""
        return len(self.sizes)

    @property
    def largest(self) -> int:
        """The largest size that a coalition may have."""
        return int(self.sizes.sum()) if self.max_size is None else self.max_size

    @property
    def penalty(self) -> float:
        """More than any objective can be: what one client missing to the minimum size costs during a search."""
        return float((self.sizes * (self.C / np.sqrt(self.masses) + 1)).sum()) + 1

    def at(self, C: float) -> Self:
        """Return the same problem with another C."""
        return replace(self, C=C)

    def cost(self, sizes: Any, masses: Any, sums: Any) -> Any:
        """Return f(S) for n_S, m_S > 0 and V_S (numbers or arrays), with the penalty for too small coalitions."""
        value = (self.C * sizes) / np.sqrt(masses)
        value += sums / masses
        if self.min_size > 1:
            value += self.penalty * np.maximum(self.min_size - sizes, 0)
        return value

    def lines(self, labels: Labels) -> tuple[float, float]:
        """Return L as a line in C for a partition of the units: (a, b) with L = a C + b."""
        sizes = np.bincount(labels, weights=self.sizes)
        masses = np.bincount(labels, weights=self.masses)
        sums = self.sums(labels)
        used = sizes > 0
        return float((sizes[used] / np.sqrt(masses[used])).sum()), float((sums[used] / masses[used]).sum())

    def value(self, labels: Labels) -> float:
        """Return L of a partition of the units."""
        slope, intercept = self.lines(labels)
        return slope * self.C + intercept

    def missing(self, labels: Labels) -> float:
        """Return how many clients the coalitions lack to the minimum size."""
        sizes = np.bincount(labels, weights=self.sizes)
        return float(np.maximum(self.min_size - sizes[sizes > 0], 0).sum())

    def admits(self, labels: Labels) -> bool:
        """Return whether a partition of the units respects size and cannot-link constraints."""
        sizes = np.bincount(labels, weights=self.sizes)
        sizes = sizes[sizes > 0]
        apart = self.clash is None or not clashing(self.clash, labels)
        return apart and bool(sizes.min() >= self.min_size and sizes.max() <= self.largest)

    def to_clients(self, labels: Labels) -> Labels:
        """Return the partition of the clients that a partition of the units stands for."""
        return first_appearance(np.asarray(labels)[self.unit])

    def to_units(self, assignment: Labels) -> Labels:
        """Return the partition of the units that a partition of the clients stands for."""
        labels = np.zeros(self.count, dtype=np.int64)
        labels[self.unit] = assignment
        return first_appearance(labels)

    def contracted(self, blocks: Labels, inner: Floats) -> Instance:
        """Contract blocks, given `inner`: for every two blocks the sum of m_j D_ij over i in one and j in the other.

        `inner` is used up: the pair costs are written over it.
        """
        clash = self.clash
        if clash is not None:
            order, starts = _grouped(blocks)
            clash = np.logical_or.reduceat(clash[order], starts, axis=0)[:, order]
            clash = np.logical_or.reduceat(clash, starts, axis=1)
        own = inner.diagonal().copy()
        pairs = _with_transpose(inner)
        np.fill_diagonal(pairs, 0)
        return Instance(
            sizes=np.bincount(blocks, weights=self.sizes).astype(np.float64),
            masses=np.bincount(blocks, weights=self.masses).astype(np.float64),
            own=own,
            clash=clash,
            min_size=self.min_size,
            max_size=self.max_size,
            C=self.C,
            unit=blocks[self.unit],
            pairs=pairs,
        )


@dataclass(frozen=True)
class Instance(Problem):
    """A problem with its pair costs in memory."""

    pairs: Floats

    def in_order(self) -> Instance:
        """Return the same problem with its units in canonical order."""
        order = canonical_order(self.sizes, self.masses, self.own, self.pairs, self.clash)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return replace(
            self,
            sizes=self.sizes[order],
            masses=self.masses[order],
            own=self.own[order],
            pairs=self.pairs[np.ix_(order, order)],
            clash=None if self.clash is None else self.clash[np.ix_(order, order)],
            unit=rank[self.unit],
        )

    def row(self, unit: int) -> Floats:  # noqa: D102 (as in Problem)
        costs: Floats = self.pairs[unit]
        return costs

    def rows(self) -> Iterator[Floats]:  # noqa: D102
        return iter(self.pairs)

    def table(self) -> Floats:  # noqa: D102
        return self.pairs.copy()

    @property
    def room(self) -> float:  # noqa: D102
        return 3 * self.pairs.nbytes

    def sums(self, labels: Labels) -> Floats:  # noqa: D102
        sums: Floats = np.bincount(labels, weights=self.own).astype(np.float64)
        if self.count <= FEW:
            return sums + np.bincount(labels, weights=(self.pairs * (labels[:, None] == labels)).sum(axis=1)) / 2
        order, starts = _grouped(labels)
        for members in np.split(order, starts[1:]):
            sums[labels[members[0]]] += self.pairs[np.ix_(members, members)].sum() / 2
        return sums

    def contract(self, blocks: Labels) -> Instance:  # noqa: D102
        order, starts = _grouped(blocks)
        inner = np.empty((len(starts), len(starts)))
        for block, members in enumerate(np.split(order, starts[1:])):
            total = self.pairs[members[0]] if len(members) == 1 else self.pairs[members].sum(axis=0)
            inner[block] = np.bincount(blocks, weights=total)
        inner /= 2
        inner[np.diag_indices(len(inner))] += np.bincount(blocks, weights=self.own)
        return self.contracted(blocks, inner)


@dataclass(frozen=True)
class RowInstance(Problem):
    """A problem whose pair costs are read from the matrix, row by row. Units keep the order of the clients."""

    inputs: Inputs

    def row(self, unit: int) -> Floats:  # noqa: D102
        if self.count == len(self.unit):
            return self._pair_costs(unit)
        total = np.sum([self._pair_costs(client) for client in np.flatnonzero(self.unit == unit).tolist()], axis=0)
        costs: Floats = np.bincount(self.unit, weights=total).astype(np.float64)
        costs[unit] = 0.0  # pairs inside the unit are its own sum
        return costs

    def _pair_costs(self, client: int) -> Floats:
        """Return the pair costs of one client with every client."""
        m, matrix = self.inputs.quantities, self.inputs.matrix
        if self.inputs.symmetric:
            return np.asarray(matrix[client] * (m + m[client]))
        return np.asarray(matrix[client] * m + matrix[:, client] * m[client])

    def rows(self) -> Iterator[Floats]:  # noqa: D102
        if self.inputs.symmetric or self.count < len(self.unit):
            yield from map(self.row, range(self.count))
            return
        m, matrix = self.inputs.quantities, self.inputs.matrix
        for start in range(0, len(m), BLOCK):  # columns side by side are read together
            part = slice(start, start + BLOCK)
            yield from matrix[part] * m + np.ascontiguousarray(matrix[:, part].T) * m[part, None]

    def table(self) -> NDArray[np.float32]:
        """Return all pair costs in single precision: whoever asks wants to know which are small."""
        costs = np.empty((self.count, self.count), dtype=np.float32)
        for unit, row in enumerate(self.rows()):
            costs[unit] = row
        return costs

    @property
    def room(self) -> float:  # noqa: D102
        return max(0.8 * self.inputs.matrix.nbytes, ALLOWANCE)

    def sums(self, labels: Labels) -> Floats:  # noqa: D102
        assignment = labels[self.unit]
        own = own_sums(self.inputs.matrix, self.inputs.quantities, assignment)
        return np.bincount(assignment, weights=own).astype(np.float64)

    def contract(self, blocks: Labels) -> Instance:  # noqa: D102
        labels, m, matrix = blocks[self.unit], self.inputs.quantities, self.inputs.matrix
        count = int(blocks.max()) + 1
        inner = np.empty((count, count))
        order, starts = _grouped(labels)
        for block, members in enumerate(np.split(order, starts[1:])):
            total = matrix[members[0]].astype(np.float64)
            for k in members[1:]:
                total += matrix[k]
            inner[block] = np.bincount(labels, weights=total * m, minlength=count)
        return self.contracted(blocks, inner)

    def subset(self, units: Labels, share: float = 1.0) -> Instance:
        """Return the problem of some of the units in memory, with C and size limits for a sample of this share."""
        place = np.full(self.count, -1)
        place[units] = np.arange(len(units))
        clients = np.flatnonzero(place[self.unit] >= 0)
        clients = clients[np.argsort(place[self.unit[clients]], kind="stable")]
        starts = np.flatnonzero(np.r_[True, np.diff(place[self.unit[clients]]) > 0])
        inner = self.inputs.matrix[np.ix_(clients, clients)] * self.inputs.quantities[clients]
        if len(clients) > len(units):
            inner = np.add.reduceat(np.add.reduceat(inner, starts, axis=0), starts, axis=1)
        chosen = RowInstance(
            sizes=self.sizes[units],
            masses=self.masses[units],
            own=self.own[units],
            clash=None if self.clash is None else self.clash[np.ix_(units, units)],
            min_size=self.min_size if share == 1 else 1,
            max_size=None if self.max_size is None else max(1, int(self.max_size * share)),
            C=self.C * float(np.sqrt(share)),
            unit=place[self.unit[clients]],
            inputs=self.inputs,
        )
        return chosen.contracted(np.arange(len(units)), inner)

    def order(self) -> Labels:
        """Return the units by quantity and by the bits of their distances: an order that follows a renaming."""
        bits = np.uint32 if self.inputs.matrix.dtype.itemsize == 4 else np.uint64
        rows = [np.ascontiguousarray(row).view(bits).sum(dtype=np.uint64) for row in self.inputs.matrix]
        key = np.zeros(self.count, dtype=np.uint64)
        np.add.at(key, self.unit, np.array(rows))
        return np.lexsort((key, self.masses)).astype(np.int64)


def build_instance(inputs: Inputs, constraints: Constraints, C: float) -> Instance:
    """Contract must-link groups, make the pair costs symmetric and put the units in canonical order."""
    unit = constraints.units(len(inputs.quantities))
    m = inputs.quantities
    if unit.max() + 1 == len(unit):
        pairs: Floats = _with_transpose(inputs.matrix * m)
        own = np.zeros(len(m))
    else:
        join = np.zeros((int(unit.max()) + 1, len(unit)))
        join[unit, np.arange(len(unit))] = 1
        inner = join @ (inputs.matrix * m) @ join.T
        own = inner.diagonal().copy()
        pairs = inner + inner.T
        np.fill_diagonal(pairs, 0)
    sizes, masses = np.bincount(unit).astype(np.float64), np.bincount(unit, weights=m).astype(np.float64)
    clash = constraints.conflicts(unit)
    limits = (constraints.min_size, constraints.max_size)
    return Instance(sizes, masses, own, clash, *limits, C, unit, pairs).in_order()


def build_rows(inputs: Inputs, constraints: Constraints, C: float) -> RowInstance:
    """Contract must-link groups and leave everything else in the matrix."""
    m, unit = inputs.quantities, constraints.units(len(inputs.quantities))
    own = np.zeros(int(unit.max()) + 1)
    for group in np.flatnonzero(np.bincount(unit) > 1):
        clients = np.flatnonzero(unit == group)
        own[group] = (inputs.matrix[np.ix_(clients, clients)] @ m[clients]).sum()
    sizes, masses = np.bincount(unit).astype(np.float64), np.bincount(unit, weights=m).astype(np.float64)
    clash, limits = constraints.conflicts(unit), (constraints.min_size, constraints.max_size)
    return RowInstance(sizes, masses, own, clash, *limits, C, unit, inputs)


def canonical_order(
    sizes: Floats, masses: Floats, own: Floats, pairs: Floats, clash: NDArray[np.bool_] | None
) -> Labels:
    """Return an order of the units that follows them when they are reordered.

    Each unit's key starts from its own numbers and takes in, twice, a sum over what it sees of every other unit (bits
    of the pair cost mixed with the other's key; sums of 64-bit integers do not depend on the order of addition).
    """
    key = _mix(_bits(masses)) ^ _mix(_bits(own) + np.uint64(1)) ^ _mix(_bits(sizes) + np.uint64(2))
    if len(sizes) > FEW:
        key = _mix(key) + _bits(pairs).sum(axis=1, dtype=np.uint64)
        return np.lexsort((key, masses)).astype(np.int64)
    seen = _mix(_bits(pairs))
    if clash is not None:
        seen = seen ^ _mix(clash.astype(np.uint64))
    for _ in range(2):
        key = _mix(key) + _mix(seen ^ key).sum(axis=1, dtype=np.uint64)
    return np.lexsort((key, masses)).astype(np.int64)


def _with_transpose(square: Floats) -> Floats:
    """Add its transpose to a matrix, in place."""
    for i in range(0, len(square), TILE):
        for j in range(i, len(square), TILE):
            upper, lower = square[i : i + TILE, j : j + TILE], square[j : j + TILE, i : i + TILE]
            upper[:] = upper + lower.T
            lower[:] = upper.T
    return square


def _grouped(labels: Labels) -> tuple[Labels, Labels]:
    """Return the positions sorted by label, and where each label starts among them."""
    order = np.argsort(labels, kind="stable")
    return order, np.flatnonzero(np.r_[True, np.diff(labels[order]) > 0])


def _bits(values: Floats) -> NDArray[np.uint64]:
    """Return the bits of the numbers as integers, the same for 0 and -0."""
    return np.ascontiguousarray(values + 0.0).view(np.uint64)


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread every bit over the 64-bit word (the finaliser of splitmix64)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
