"""Prices: the linear relaxation of the partition problem, by column generation.

    min sum_S f(S) x_S,  sum over S holding u of x_S = 1 for every unit u,  x >= 0      (a partition has x in {0, 1})
    dual: max sum_u y_u,  sum_{u in S} y_u <= f(S) for every admissible S

Any prices y that respect every S are a proof that no partition costs less than their sum. A small revised simplex
over the coalitions known so far gives prices; the caller's `price` looks for coalitions that violate them, until
there are none. The right-hand side is perturbed a little, so that degenerate steps cannot cycle; that changes the
path to the prices and never the proof.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedcollab.coalitions.inputs import Floats

Masks = NDArray[np.uint64]


class Pool:
    """Coalitions known so far: bit masks, their 0/1 columns and costs. Single units at a large cost come first."""

    def __init__(self, count: int, large: float) -> None:
        self.count = count
        self.masks: Masks = np.uint64(1) << np.arange(count, dtype=np.uint64)
        self.columns: Floats = np.eye(count)
        self.costs: Floats = np.full(count, large)
        self.basis = np.arange(count)
        self._known = set()  # type: set[int]

    def add(self, masks: Masks, costs: Floats) -> int:
        """Take in coalitions that are not known yet; returns how many."""
        fresh = [at for at, mask in enumerate(masks.tolist()) if mask not in self._known]
        if fresh:
            self._known.update(masks[fresh].tolist())
            self.masks = np.r_[self.masks, masks[fresh]]
            self.columns = np.c_[self.columns, unpack(masks[fresh], self.count).T]
            self.costs = np.r_[self.costs, costs[fresh]]
        return len(fresh)

    def prices(self, limit: int = 20_000) -> Floats:
        """Simplex over the pool from the last basis: the prices at its end."""
        right = 1 + 1e-5 * (1 + np.arange(self.count) * 0.6180339887 % 1)
        inverse = np.linalg.inv(self.columns[:, self.basis])
        level = inverse @ right
        scale = max(1.0, float(np.abs(self.costs[self.count :]).max(initial=1.0)))
        y = self.costs[self.basis] @ inverse
        for step in range(limit):
            reduced = self.costs - y @ self.columns
            entering = int(reduced.argmin())
            if reduced[entering] > -1e-11 * scale:
                break
            direction = inverse @ self.columns[:, entering]
            ratio = np.where(direction > 1e-9, level / np.where(direction > 1e-9, direction, 1.0), np.inf)
            leaving = int(ratio.argmin())
            if not np.isfinite(ratio[leaving]):
                break
            self.basis[leaving] = entering
            if step % 64 == 63:
                inverse = np.linalg.inv(self.columns[:, self.basis])
            else:
                pivot = inverse[leaving] / direction[leaving]
                inverse -= np.outer(direction, pivot)
                inverse[leaving] = pivot
            level = inverse @ right
            y = self.costs[self.basis] @ inverse
        return np.asarray(y)

    def weights(self) -> Floats:
        """x of the basis, for the right-hand side of ones."""
        return np.asarray(np.linalg.solve(self.columns[:, self.basis], np.ones(self.count)))


def unpack(masks: Masks, count: int) -> Floats:
    """Return one row of zeros and ones for each bit mask: which units the coalition holds."""
    return ((masks[:, None] >> np.arange(count, dtype=np.uint64)) & np.uint64(1)).astype(np.float64)


def column_generation(
    pool: Pool,
    price: Callable[[Floats], tuple[float, Masks, Floats] | None],
    upper: float,
    rounds: int,
) -> tuple[Floats, float]:
    """Prices that respect every coalition, and their sum: a lower bound on every partition.

    `price(y)` returns the least f(S) - y(S) over all admissible S with coalitions that violate y, or None when its
    budget of work is spent. Prices that violate by rho are lowered by it (every coalition has at least one unit).
    """
    best = np.full(pool.count, -np.inf)
    proven = -np.inf
    for _ in range(rounds):
        y = pool.prices()
        answer = price(y)
        if answer is None:
            break
        least, masks, costs = answer
        valid = y + min(0.0, least)
        if valid.sum() > proven:
            best, proven = valid, float(valid.sum())
        if least > -1e-12 * max(1.0, abs(upper)) or proven >= upper * (1 - 1e-10) or not pool.add(masks, costs):
            break
    return best, proven
