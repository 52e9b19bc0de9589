"""Plain readings that the solver is measured against and tested with: Algorithm 2 to the letter, and two oracles."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def objective(D: Array, m: Array, p: NDArray[np.int64], C: float) -> float:
    """Eq. (collab_obj), first line, through the matrix A of Eq. (collab_mat)."""
    beta = m / m.sum()
    same = p[:, None] == p[None, :]
    A = same * beta / (same * beta).sum(axis=1, keepdims=True)
    return float((C / np.sqrt(m.sum()) * np.sqrt((A**2 / beta).sum(axis=1)) + (A * D).sum(axis=1)).sum())


def algorithm_2(D: Array, m: Array, C: float, rng: np.random.Generator) -> tuple[float, NDArray[np.int64]]:
    """One run from all-local: for each client the whole objective is evaluated for each of the N choices."""
    count = len(m)
    p = np.arange(count)
    changed = True
    while changed:
        changed = False
        for k in rng.permutation(count):
            before, values = p[k], np.empty(count)
            for choice in range(count):
                p[k] = choice
                values[choice] = objective(D, m, p, C)
            best = int(values.argmin())
            p[k] = best if values[best] < values[before] - 1e-12 else before
            changed |= bool(p[k] != before)
    return objective(D, m, p, C), p


def best_of_restarts(D: Array, m: Array, C: float, restarts: int, seed: int = 0) -> tuple[float, NDArray[np.int64]]:
    """Algorithm 2 with restarts, as the paper uses it."""
    rng = np.random.default_rng(seed)
    return min((algorithm_2(D, m, C, rng) for _ in range(restarts)), key=lambda found: found[0])


def partitions(count: int) -> Iterator[list[int]]:
    """All set partitions as label lists (restricted growth strings)."""

    def grow(prefix: list[int], top: int) -> Iterator[list[int]]:
        if len(prefix) == count:
            yield prefix
            return
        for label in range(top + 1):
            yield from grow([*prefix, label], max(top, label + 1))

    yield from grow([], 0)


def subset_programme(cost: dict[int, float], count: int) -> float:
    """The plain dynamic programme: best(S) = min over T in S with the lowest client of S of f(T) + best(S - T)."""
    best = [0.0] + [float("inf")] * ((1 << count) - 1)
    for S in range(1, 1 << count):
        low = S & -S
        rest = S ^ low
        T = rest
        while True:
            value = cost[T | low] + best[rest ^ T]
            if value < best[S]:
                best[S] = value
            if T == 0:
                break
            T = (T - 1) & rest
    return best[-1]


def subset_costs(D: Array, m: Array, C: float) -> dict[int, float]:
    """f(S) of every non-empty subset, each from its definition."""
    costs = {}
    for size in range(1, len(m) + 1):
        for members in combinations(range(len(m)), size):
            S = list(members)
            total = m[S].sum()
            costs[sum(1 << i for i in S)] = size * C / np.sqrt(total) + (D[np.ix_(S, S)] @ m[S]).sum() / total
    return costs


def planted(
    groups: int, each: int, seed: int, within: float = 0.05, between: float = 0.6
) -> tuple[Array, Array, Array]:
    """A symmetric matrix with planted groups and noise, quantities from 100 to 1,000, and the groups."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(groups), each)
    D = np.where(truth[:, None] == truth, within, between) + rng.normal(0, within / 2, (len(truth),) * 2)
    D = np.clip((D + D.T) / 2, 0, 1)
    np.fill_diagonal(D, 0)
    return D, rng.integers(100, 1001, len(truth)).astype(float), truth


def uniform(count: int, seed: int) -> tuple[Array, Array]:
    """A symmetric matrix of independent uniform distances, quantities log-uniform from 10 to 3,000."""
    rng = np.random.default_rng(seed)
    D = np.triu(rng.random((count, count)), 1)
    return D + D.T, np.exp(rng.uniform(np.log(10), np.log(3000), count)).round()


def greedy_merging(D: Array, m: Array, C: float) -> NDArray[np.int64]:
    """Greedy merging from all-local in plain NumPy: the pair that lowers L most is joined until none does."""
    n, mass, inner = np.ones(len(m)), m.astype(float), np.zeros(len(m))
    pairs = D * mass
    pairs = pairs + pairs.T
    labels = np.arange(len(m))

    def changes(a: slice | int) -> Array:
        size, both = n[a, None] + n, mass[a, None] + mass
        joined = C * size / np.sqrt(both) + (inner[a, None] + inner + pairs[a]) / both
        cost = C * n / np.sqrt(mass) + inner / mass
        return joined - cost[a, None] - cost

    table = changes(slice(None))
    np.fill_diagonal(table, np.inf)
    gone = np.zeros(len(m), dtype=bool)
    while True:
        a, b = divmod(int(table.argmin()), len(m))
        if not table[a, b] < 0:
            return labels
        inner[a] += inner[b] + pairs[a, b]
        n[a], mass[a] = n[a] + n[b], mass[a] + mass[b]
        pairs[a] += pairs[b]
        pairs[:, a] = pairs[a]
        labels[labels == b] = a
        gone[b] = True
        row = changes(slice(a, a + 1))[0]
        row[gone] = row[a] = np.inf
        table[a] = table[:, a] = row
        table[b] = table[:, b] = np.inf


def consortium(
    count: int, groups: int, seed: int, noise: float = 0.02, unequal: bool = False, symmetric: bool = True
) -> tuple[NDArray[np.float32], Array, NDArray[np.int64]]:
    """A float32 matrix with planted groups at distances from .1 to .9, log-uniform quantities, and the groups.

    Inside a group the distance is .05; every distance has normal noise. Made in blocks, so that 10,000 clients fit.
    """
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(groups, 2.0)) if unequal else np.full(groups, 1 / groups)
    truth = rng.choice(groups, count, p=shares)
    centres = np.triu(rng.uniform(0.1, 0.9, (groups, groups)), 1).astype(np.float32)
    centres += centres.T
    np.fill_diagonal(centres, 0.05)
    D = np.empty((count, count), dtype=np.float32)
    for i in range(0, count, 500):
        for j in range(i if symmetric else 0, count, 500):
            rows, columns = truth[i : i + 500], truth[j : j + 500]
            part = centres[np.ix_(rows, columns)]
            part += np.float32(noise) * rng.standard_normal(part.shape, dtype=np.float32)
            np.clip(part, 0, 1, out=part)
            if symmetric:
                part = np.triu(part, 1) + np.triu(part, 1).T if i == j else part
                D[j : j + 500, i : i + 500] = part.T
            D[i : i + 500, j : j + 500] = part
    np.fill_diagonal(D, 0)
    return D, np.exp(rng.uniform(np.log(20), np.log(5000), count)).round(), truth
