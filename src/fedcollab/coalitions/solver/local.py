"""Local search: Algorithm 2 from all-local, every restart in lockstep, and the moves that leave its local optima.

Algorithm 2 visits the clients in a random order and gives each to the coalition where L is lowest, until a whole pass
changes nothing. Moving k from S to T changes L by
    f(S \\ k) - f(S) + f(T + k) - f(T),  f(S) = C n_S / sqrt(m_S) + V_S / m_S,
so one row of pair costs, summed by coalition, prices all N choices at once; the whole objective is never evaluated.
All restarts take their t-th step together as rows of one array.

What it cannot leave by single moves is left by joining two coalitions, by swapping two clients, and by starting some
restarts from random partitions. With the paper's quantities most single runs end in [0..4], [5..9], [10..14],
[15..19]; joining the last two is one such move.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedcollab.coalitions.inputs import Floats, Labels, first_appearance
from fedcollab.coalitions.solver.instance import Instance
from fedcollab.seeds import generator

#: elements that one lockstep step may touch; larger searches run their restarts in several batches
BATCH = 2_000_000


def search(instance: Instance, restarts: int, seed: int, starts: tuple[Labels, ...] = ()) -> Labels:
    """The best partition of the units over all restarts (and any further `starts`)."""
    found: list[Labels] = []
    count = instance.count
    rng = generator(seed, "coalitions", count)
    size = max(1, BATCH // max(1, count * count))
    for first in range(0, restarts, size):
        batch = min(size, restarts - first)
        found.extend(_unique(_run(instance, _starting(count, batch, first, rng), rng)))
    if starts:
        found.extend(_run(instance, np.stack(starts), rng))
    return best_of(instance, found)


def best_of(instance: Instance, found: list[Labels]) -> Labels:
    """The admissible partition with the lowest objective; among equals the first in the order of labels."""
    scored = [(instance.value(labels), labels) for labels in unique(found) if instance.admits(labels)]
    if not scored:
        return first_appearance(found[0])
    lowest = min(value for value, _ in scored)
    ties = [labels for value, labels in scored if value <= lowest + 1e-12 * max(1.0, abs(lowest))]
    return min(ties, key=lambda labels: labels.tolist())


def unique(found: list[Labels]) -> list[Labels]:
    """Return the different partitions among these, with labels in order of first appearance."""
    return list({labels.tobytes(): labels for labels in map(first_appearance, found)}.values())


def _starting(count: int, batch: int, first: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """All-local for the first and three of every four runs, random partitions for the others."""
    labels = np.tile(np.arange(count), (batch, 1))
    for run in range(batch):
        if (first + run) % 4 == 3:
            labels[run] = rng.integers(0, rng.integers(1, count + 1), count)
    return labels


def _run(instance: Instance, labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Algorithm 2, then joins and swaps, until none of them improves any run."""
    labels = _unique(_descend(instance, _repair(instance, labels), rng))
    done: list[NDArray[np.int64]] = []
    while len(labels):
        escaped = _escape(instance, labels)
        changed = (escaped != labels).any(axis=1)
        done.append(labels[~changed])
        labels = _unique(_descend(instance, escaped[changed], rng)) if changed.any() else labels[:0]
    return np.concatenate(done)


def _repair(instance: Instance, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Runs whose start breaks a hard constraint start from all-local instead."""
    if instance.clash is None and instance.max_size is None:
        return labels
    fine = [
        np.bincount(row, weights=instance.sizes).max() <= instance.largest
        and (instance.clash is None or not (instance.clash & (row[:, None] == row)).any())
        for row in labels
    ]
    return np.where(np.array(fine)[:, None], labels, np.arange(instance.count))


def _unique(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Different partitions only, each with labels in order of first appearance."""
    return np.unique(_tidy(labels), axis=0) if len(labels) else labels


def _tidy(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Labels in order of first appearance, for every row."""
    first = (labels[:, :, None] == labels[:, None, :]).argmax(axis=2)  # the first unit of each unit's coalition
    rank = (first == np.arange(labels.shape[1])).cumsum(axis=1) - 1
    return np.take_along_axis(rank, first, axis=1)


class _State:
    """Sizes, masses, pair sums and costs of every coalition of every run: R x K arrays."""

    def __init__(self, instance: Instance, labels: NDArray[np.int64], slots: int) -> None:
        runs, count = labels.shape
        self.instance, self.labels, self.slots = instance, labels, slots
        self.offset = np.arange(runs)[:, None] * slots
        member = np.zeros((runs, slots, count))
        member[np.arange(runs)[:, None], labels, np.arange(count)] = 1
        self.seen = member @ instance.pairs  # runs x slots x units: pair costs of a unit with a coalition
        self.sizes = member @ instance.sizes
        self.masses = member @ instance.masses
        self.sums = member @ instance.own + (self.seen * member).sum(axis=2) / 2
        self.member = member
        self.costs = self._costs(self.sizes, self.masses, self.sums)
        self.eps = 1e-12 * max(1.0, float(self.costs.sum(axis=1).max()))

    def _costs(self, sizes: Floats, masses: Floats, sums: Floats) -> Floats:
        used = sizes > 0
        return np.where(used, self.instance.cost(sizes, np.where(used, masses, 1.0), sums), 0.0)


def _descend(instance: Instance, labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Algorithm 2 on every row of `labels` at once."""
    labels = labels.copy()
    active = np.arange(len(labels))
    while active.size:
        rows = _tidy(labels[active])
        moved = _one_pass(instance, rows, rng)
        labels[active] = rows
        active = active[moved]
    return labels


def _one_pass(instance: Instance, labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.bool_]:
    """One pass over a permutation of the units per run; changes `labels`, returns which runs moved anything."""
    runs, count = labels.shape
    slots = min(count, int(labels.max()) + 2)
    state = _State(instance, labels, slots)
    sizes, masses, sums, costs = state.sizes, state.masses, state.sums, state.costs
    order = rng.permuted(np.tile(np.arange(count), (runs, 1)), axis=1)
    run = np.arange(runs)
    moved = np.zeros(runs, dtype=bool)
    for step in range(count):
        k = order[:, step]
        flat = (state.offset + labels).ravel()
        seen = np.bincount(flat, weights=instance.pairs[k].ravel(), minlength=runs * slots).reshape(runs, slots)
        n, m, w = instance.sizes[k], instance.masses[k], instance.own[k]
        here = labels[run, k]
        # f(T + k) - f(T) for every coalition T, and for its own what it saves by leaving it: the two compare.
        joined = instance.cost(sizes + n[:, None], masses + m[:, None], sums + seen + w[:, None])
        change = joined - costs
        if instance.clash is not None:
            flags = instance.clash[k].ravel().astype(np.float64)
            change[np.bincount(flat, weights=flags, minlength=runs * slots).reshape(runs, slots) > 0] = np.inf
        if instance.max_size is not None:
            change[sizes + n[:, None] > instance.largest] = np.inf
        left = sizes[run, here] - n
        rest_m = np.where(left > 0, masses[run, here] - m, 1.0)
        rest_v = sums[run, here] - w - seen[run, here]
        rest = np.where(left > 0, instance.cost(left, rest_m, rest_v), 0.0)
        change[run, here] = costs[run, here] - rest
        target = change.argmin(axis=1)
        go = np.flatnonzero(change[run, target] < change[run, here] - state.eps)
        if go.size == 0:
            continue
        moved[go] = True
        a, b, u = here[go], target[go], k[go]
        emptied = left[go] <= 0
        costs[go, b] = joined[go, b]
        sizes[go, b] += n[go]
        masses[go, b] += m[go]
        sums[go, b] += w[go] + seen[go, b]
        costs[go, a] = rest[go]
        sizes[go, a] = np.where(emptied, 0.0, left[go])
        masses[go, a] = np.where(emptied, 0.0, rest_m[go])
        sums[go, a] = np.where(emptied, 0.0, rest_v[go])
        labels[go, u] = b
    return moved


def _escape(instance: Instance, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """The best join of two coalitions of each run or, where none helps, the best swap of two units."""
    state = _State(instance, labels, int(labels.max()) + 1)
    result = labels.copy()
    gain, first, second = _best_join(state)
    joins = np.flatnonzero(gain < -state.eps)
    for run in joins:
        result[run][result[run] == second[run]] = first[run]
    if instance.count <= 256 and len(joins) < len(labels):
        gain, first, second = _best_swap(state)
        gain[joins] = 0
        for run in np.flatnonzero(gain < -state.eps):
            i, j = first[run], second[run]
            result[run, i], result[run, j] = labels[run, j], labels[run, i]
    return result


def _best_join(state: _State) -> tuple[Floats, Labels, Labels]:
    instance, slots = state.instance, state.slots
    across = state.seen @ state.member.transpose(0, 2, 1)
    sizes = state.sizes[:, :, None] + state.sizes[:, None, :]
    masses = state.masses[:, :, None] + state.masses[:, None, :]
    sums = state.sums[:, :, None] + state.sums[:, None, :] + across
    change = instance.cost(sizes, np.where(masses > 0, masses, 1.0), sums)
    change -= state.costs[:, :, None] + state.costs[:, None, :]
    used = state.sizes > 0
    barred = ~(used[:, :, None] & used[:, None, :]) | np.eye(slots, dtype=bool) | (sizes > instance.largest)
    if instance.clash is not None:
        barred |= (state.member @ instance.clash @ state.member.transpose(0, 2, 1)) > 0
    change[barred] = np.inf
    flat = change.reshape(len(change), -1)
    best = flat.argmin(axis=1)
    return flat[np.arange(len(flat)), best], best // slots, best % slots


def _best_swap(state: _State) -> tuple[Floats, Labels, Labels]:
    instance, labels = state.instance, state.labels
    runs, count = labels.shape
    run = np.arange(runs)[:, None]
    size, mass, own = instance.sizes, instance.masses, instance.own
    # The coalition of i when i leaves it and j comes: pairs of i go, pairs of j with the rest of it come.
    toward = np.take_along_axis(state.seen, labels[:, :, None], axis=1)  # run, i, j: j with the coalition of i
    away = toward[:, np.arange(count), np.arange(count)]
    n = state.sizes[run, labels][:, :, None] - size[:, None] + size
    m = state.masses[run, labels][:, :, None] - mass[:, None] + mass
    v = state.sums[run, labels][:, :, None] - (own + away)[:, :, None] + own + toward - instance.pairs
    half = instance.cost(n, m, v) - state.costs[run, labels][:, :, None]
    change = half + half.transpose(0, 2, 1)
    barred = (labels[:, :, None] == labels[:, None, :]) | (n > instance.largest)
    if instance.clash is not None:
        with_coalition = np.take_along_axis(state.member @ instance.clash, labels[:, :, None], axis=1)
        barred |= (with_coalition - instance.clash) > 0
    change[barred | barred.transpose(0, 2, 1)] = np.inf
    flat = change.reshape(runs, -1)
    best = flat.argmin(axis=1)
    return flat[np.arange(runs), best], best // count, best % count
