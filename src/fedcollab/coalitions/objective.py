"""The objective (Eq. collab_obj, its first line) and its two terms per client.

    L = sum_i ( C / sqrt(m_S) + sum_{j in S} (m_j / m_S) D_ij ),  S the coalition of client i
      = sum_S ( |S| C / sqrt(m_S) + (1 / m_S) sum_{i in S} sum_{j in S} m_j D_ij )

C: capacity constant; m_S: samples of coalition S; D_ij: distance seen by client i. The matrix may be asymmetric.
The first term falls when a coalition grows (generalisation), the second rises with unlike members (shift).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedcollab.coalitions.inputs import Floats, Labels, Matrix, check_assignment, read_inputs
from fedcollab.errors import number

#: rows of the matrix that are in work at once; keeps a 10,000 x 10,000 matrix from being copied
BLOCK = 64


def objective(distances: object, quantities: ArrayLike | None, assignment: ArrayLike, C: float = 10.0) -> float:
    """Return the value that `solve` minimises, for any partition given as one coalition label per client.

    Parameters
    ----------
    distances : array-like, DataFrame or Distances
        N x N, in [0, 1].
    quantities : array-like, mapping or None
        Each client's training samples; None where `distances` has them.
    assignment : array-like of int
        One coalition label per client.
    C : float
        How much it hurts to have little data.

    Returns
    -------
    float
        The sum over clients of `C / sqrt(m_S)` and the mean distance to the samples of their coalition.

    Raises
    ------
    InputError
        If an argument is out of range, or they do not fit together.

    Examples
    --------
    >>> D = [[0.0, 0.2], [0.2, 0.0]]
    >>> objective(D, [100, 300], [0, 1], C=1)  # 1/10 + 1/sqrt(300)
    0.15773502691896257
    >>> objective(D, [100, 300], [0, 0], C=1)  # 2/20 + 0.2 * 300/400 + 0.2 * 100/400
    0.3
    """
    inputs = read_inputs(distances, quantities)
    labels = check_assignment(assignment, len(inputs.quantities))
    C = number("C", C, above=0)
    return float(terms(inputs.quantities, labels, own_sums(inputs.matrix, inputs.quantities, labels), C).sum())


def terms(quantities: Floats, labels: Labels, own_pull: Floats, C: float) -> Floats:
    """Per client (generalisation, shift), shape N x 2: C / sqrt(m_S) and sum_{j in S} m_j D_ij / m_S."""
    mass = np.bincount(labels, weights=quantities)[labels]
    return np.stack([C / np.sqrt(mass), own_pull / mass], axis=1)


def own_sums(matrix: Matrix, quantities: Floats, labels: Labels) -> Floats:
    """For each client k in coalition S: sum_{j in S} m_j D_kj. Reads only the blocks inside coalitions."""
    sums = np.zeros(len(labels))
    order = np.argsort(labels, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        if len(members) == 1:
            continue
        for start in range(0, len(members), BLOCK):
            rows = members[start : start + BLOCK]
            block = matrix[np.ix_(rows, members)] if len(members) < len(labels) else matrix[start : start + BLOCK]
            sums[rows] = block @ quantities[members]
    return sums


def coalition_sums(matrix: Matrix, quantities: Floats, labels: Labels, symmetric: bool) -> tuple[Floats, Floats]:
    """What client k and coalition T are to each other: pull_kT = sum_{j in T} m_j D_kj, push_kT = sum_{i in T} D_ik."""
    count, groups = len(labels), int(labels.max()) + 1
    pull, push = np.zeros((groups, count)), np.zeros((groups, count))
    order = np.argsort(labels, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(labels[order]) > 0])
    for client, label in enumerate(labels):  # rows are added to their coalition
        row = matrix[client].astype(np.float64)
        push[label] += row
        if symmetric:
            row *= quantities[client]
            pull[label] += row
        else:
            pull[:, client] = np.add.reduceat((row * quantities)[order], starts)
    return pull.T, push.T
