"""Is a split more than noise? How many standard errors lie between the coalitions of a partition.

For two coalitions A and B the mean distance between them, weighted by quantity, is
    d(A, B) = sum_{i in A, j in B} m_i m_j D_ij / (m_A m_B),
taken from the signed estimates (`Distances.raw`); its standard error is the spread of the same mean over the joint
replicates, in which the pairs of one client move together as they do in truth. The evidence of a partition is the
smallest d / se over its pairs of coalitions: its weakest split.

A solver that looks through all splits finds one that looks large by chance. Among the 2^(N-1) ways of cutting N clients
in two, the largest of as many standard normal values is about z(N) = sqrt(2 (N - 1) ln 2), which is what is asked for:
2.0 for 4 clients, 5.1 for 20.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from fedcollab.coalitions.inputs import Labels


def needed(count: int) -> float:
    """z(N): standard errors that the weakest split of N clients must have.

    >>> round(needed(4), 2), round(needed(20), 2)
    (2.04, 5.13)
    """
    return float(np.sqrt(2 * max(count - 1, 0) * np.log(2)))


def evidence(distances: Any, assignment: Labels) -> float | None:
    """Standard errors of the weakest split; None where nothing is split, or where there are no replicates to tell."""
    replicates = getattr(distances, "replicates", None)
    if replicates is None or len(replicates) < 2:
        return None
    groups = [np.flatnonzero(assignment == label) for label in range(int(assignment.max()) + 1)]
    weakest = np.inf
    for first, second in itertools.combinations(groups, 2):
        block = np.ix_(first, second)
        weights = np.outer(distances.quantities[first], distances.quantities[second]).astype(float)
        weights = np.where(distances.observed[block], weights, 0.0)
        if not weights.any():
            continue  # never measured: kept apart by rule, not by evidence
        weights /= weights.sum()
        mean = float((np.where(weights > 0, distances.raw[block], 0.0) * weights).sum())
        moved = (np.where(weights > 0, replicates[:, first][:, :, second], 0.0) * weights).sum(axis=(1, 2))
        weakest = min(weakest, mean / max(float(moved.std()), 1e-12))
    return float(weakest) if np.isfinite(weakest) else None
