"""The problem as the solvers see it: units with sizes, masses and pair costs, in an order of their own.

A unit is a client, or a group of clients that must stay together. The cost of a coalition S of units is
    f(S) = C n_S / sqrt(m_S) + V_S / m_S,   n_S = sum n_u,  m_S = sum m_u,  V_S = sum_u w_u + sum_{u<v} B_uv
with n_u clients, m_u samples, w_u = sum_{i,j in u} m_j D_ij and B_uv = sum_{i in u, j in v} (m_j D_ij + m_i D_ji).
f is additive in everything a move changes, and an asymmetric D becomes the symmetric B.

Units are put in a canonical order (by quantity, then by what they see of the others), so that the searches, their
random permutations and their ties do not depend on the order in which clients are given. Only clients that look the
same to these keys (equal quantity and equal distance profiles) are told apart by position.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedcollab.coalitions.constraints import Constraints
from fedcollab.coalitions.inputs import Floats, Inputs, Labels, first_appearance

#: two objectives closer than this, relatively, count as equal; an answer is called optimal within it
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Instance:
    """One problem: U units in canonical order. `unit[i]` is the unit of client i."""

    sizes: Floats
    masses: Floats
    own: Floats
    pairs: Floats
    clash: NDArray[np.bool_] | None
    min_size: int
    max_size: int | None
    C: float
    unit: Labels

    @property
    def count(self) -> int:
        """How many units there are."""
        return len(self.sizes)

    @property
    def largest(self) -> int:
        """The largest size that a coalition may have."""
        return int(self.sizes.sum()) if self.max_size is None else self.max_size

    @property
    def penalty(self) -> float:
        """More than any objective can be: what one client missing to the minimum size costs during a search."""
        return float((self.sizes * (self.C / np.sqrt(self.masses) + 1)).sum()) + 1

    def at(self, C: float) -> Instance:
        """The same problem with another C."""
        return replace(self, C=C)

    def cost(self, sizes: Floats, masses: Floats, sums: Floats) -> Floats:
        """f(S) for arrays of n_S, m_S > 0 and V_S, with the penalty for coalitions under the minimum size."""
        value = (self.C * sizes) / np.sqrt(masses)
        value += sums / masses
        if self.min_size > 1:
            value += self.penalty * np.maximum(self.min_size - sizes, 0)
        return value

    def lines(self, labels: Labels) -> tuple[float, float]:
        """L as a line in C for a partition of the units: (a, b) with L = a C + b."""
        sizes = np.bincount(labels, weights=self.sizes)
        masses = np.bincount(labels, weights=self.masses)
        sums: Floats = np.bincount(labels, weights=self.own).astype(np.float64)
        sums += np.bincount(labels, weights=(self.pairs * (labels[:, None] == labels)).sum(axis=1)) / 2
        used = sizes > 0
        return float((sizes[used] / np.sqrt(masses[used])).sum()), float((sums[used] / masses[used]).sum())

    def value(self, labels: Labels) -> float:
        """L of a partition of the units."""
        slope, intercept = self.lines(labels)
        return slope * self.C + intercept

    def admits(self, labels: Labels) -> bool:
        """Whether a partition of the units respects size and cannot-link constraints."""
        sizes = np.bincount(labels, weights=self.sizes)
        sizes = sizes[sizes > 0]
        apart = self.clash is None or not (self.clash & (labels[:, None] == labels)).any()
        return apart and bool(sizes.min() >= self.min_size and sizes.max() <= self.largest)

    def to_clients(self, labels: Labels) -> Labels:
        """The partition of the clients that a partition of the units stands for."""
        return first_appearance(np.asarray(labels)[self.unit])

    def to_units(self, assignment: Labels) -> Labels:
        """The partition of the units that a partition of the clients stands for."""
        labels = np.zeros(self.count, dtype=np.int64)
        labels[self.unit] = assignment
        return first_appearance(labels)


def build_instance(inputs: Inputs, constraints: Constraints, C: float) -> Instance:
    """Contract must-link groups, make the pair costs symmetric and put the units in canonical order."""
    unit = constraints.units(len(inputs.quantities))
    m = inputs.quantities
    if unit.max() + 1 == len(unit):
        weighted = inputs.matrix * m
        pairs: Floats = weighted + weighted.T
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
    order = canonical_order(sizes, masses, own, pairs, clash)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return Instance(
        sizes=sizes[order],
        masses=masses[order],
        own=own[order],
        pairs=pairs[np.ix_(order, order)],
        clash=None if clash is None else clash[np.ix_(order, order)],
        min_size=constraints.min_size,
        max_size=constraints.max_size,
        C=C,
        unit=rank[unit],
    )


def canonical_order(
    sizes: Floats, masses: Floats, own: Floats, pairs: Floats, clash: NDArray[np.bool_] | None
) -> Labels:
    """An order of the units that follows them when they are reordered.

    Each unit's key starts from its own numbers and takes in, twice, a sum over what it sees of every other unit (bits
    of the pair cost mixed with the other's key; sums of 64-bit integers do not depend on the order of addition).
    """
    key = _mix(_bits(masses)) ^ _mix(_bits(own) + np.uint64(1)) ^ _mix(_bits(sizes) + np.uint64(2))
    seen = _mix(_bits(pairs))
    if clash is not None:
        seen = seen ^ _mix(clash.astype(np.uint64))
    for _ in range(2):
        key = _mix(key) + _mix(seen ^ key).sum(axis=1, dtype=np.uint64)
    return np.lexsort((key, masses)).astype(np.int64)


def _bits(values: Floats) -> NDArray[np.uint64]:
    return np.ascontiguousarray(values + 0.0).view(np.uint64)


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A 64-bit finaliser (splitmix64): spreads every bit over the word."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
