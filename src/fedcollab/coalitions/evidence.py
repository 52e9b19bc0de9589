"""Is a split more than noise? How many standard errors lie between the coalitions of a partition.

For two coalitions A and B the mean distance between them, weighted by quantity, is
    d(A, B) = sum_{i in A, j in B} m_i m_j D_ij / (m_A m_B),
taken from the signed estimates (`Distances.raw`); its standard error is the spread of the same mean over the joint
replicates, in which the pairs of one client move together as they do in truth. A standard error of few samples is a
guess itself: t = d / se with nu = min(m_A, m_B) - 1 degrees of freedom (Welch 1947, at least) counts as
    z = (8 nu + 1) / (8 nu + 3) sqrt(nu ln(1 + t^2 / nu))        (Wallace 1959; with the sign of t)
standard errors, 3.2 for t = 4 from 14 samples.

A solver that looks through all splits finds one that looks large by chance. Without the split between A and B the
clients would lie in A + B and the other coalitions, and the solver could have cut any of these groups g in two, in
W = sum_g 2^(|g| - 1) ways. A split must be so large that chance would give one like it, among all of these, less than
one time in a hundred: Q(z) = .01 / W for a standard normal value (Bonferroni 1936). That is 3.0 standard errors for 4
clients in two coalitions, 5.5 for 20, 4.1 for 10 in two beside two coalitions of 5. The evidence of a partition is that
of its weakest split, as a multiple of what that split needs: 1 is enough.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from statistics import NormalDist
from typing import Any

import numpy as np

from fedcollab.coalitions.inputs import Labels

#: how often the largest of all cuts may look like evidence by chance
CHANCE = 0.01


def needed(groups: Iterable[int]) -> float:
    """Return z: the standard errors that a cut of one of the groups (of these sizes) must have.

    >>> round(needed([4]), 2), round(needed([20]), 2), round(needed([5, 5, 10]), 2)
    (3.02, 5.5, 4.13)
    """
    return quantile(float(np.exp2(np.array(list(groups)) - 1.0).sum()))


def quantile(ways: float) -> float:
    """Return z with Q(z) = `CHANCE` / ways."""
    return -NormalDist().inv_cdf(max(CHANCE / ways, sys.float_info.min))


def normal(t: Any, freedom: Any) -> Any:
    """Return the standard normal value that is as rare as this t with so many degrees of freedom.

    >>> round(float(normal(4.0, 13)), 2), round(float(normal(4.0, 1e6)), 2)
    (3.17, 4.0)
    """
    size = np.sqrt(freedom * np.log1p(t * t / freedom)) * (8 * freedom + 1) / (8 * freedom + 3)
    return np.copysign(size, t)


def evidence(distances: Any, assignment: Labels, admits: Callable[[Labels], bool] = lambda _: True) -> float | None:
    """Return the weakest split's standard errors over those it needs; None if nothing is split or no replicates tell.

    `admits` tells whether the partition without a split would be allowed: if not, the split needs no evidence.
    """
    replicates = getattr(distances, "replicates", None)
    if replicates is None or len(replicates) < 2:
        return None
    count = int(assignment.max()) + 1
    first, second = np.triu_indices(count, 1)
    if len(first) == 0:
        return None
    quantities = np.asarray(distances.quantities, dtype=np.float64)
    masses, sizes = np.bincount(assignment, weights=quantities), np.bincount(assignment).astype(np.float64)
    share = np.zeros((count, len(assignment)))
    share[assignment, np.arange(len(assignment))] = quantities / masses[assignment]
    unseen = ((share > 0) @ ~np.asarray(distances.observed) @ (share > 0).T)[first, second] > 0
    mean = (share @ np.where(distances.observed, distances.raw, 0.0) @ share.T)[first, second]
    moved = np.stack([(share @ draw @ share.T)[first, second] for draw in np.nan_to_num(replicates)]).std(axis=0)
    t, freedom = mean / np.maximum(moved, 1e-12), np.maximum(np.minimum(masses[first], masses[second]) - 1, 1)
    cuts = np.exp2(sizes - 1)  # W without the split: the two coalitions as one group, all others as they are
    ways = cuts.sum() - cuts[first] - cuts[second] + np.exp2(sizes[first] + sizes[second] - 1)
    strength = normal(t, freedom) / np.array([quantile(float(each)) for each in ways])
    for pair in np.argsort(strength, kind="stable"):
        # Kept apart by rule: some pair was never measured, or a constraint asks for the split.
        together = np.where(assignment == second[pair], first[pair], assignment)
        if not unseen[pair] and admits(together):
            return float(strength[pair])
    return None
