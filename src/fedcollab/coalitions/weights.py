"""Weights of one's own: the bound minimised client by client over all weights instead of over coalitions.

Client i may weigh every client's data as it likes, alpha_ij >= 0 with sum_j alpha_ij = 1. Its bound (Theorem 3.3, half
of what it adds to the least error, with the empirical phi of Section 4.1) is
    b_i(alpha) = C sqrt( sum_j alpha_ij^2 / m_j ) + sum_j alpha_ij D_ij,
with C the capacity constant, m_j the samples of client j and D_ij its distance as client i sees it (D_ii = 0).
Let lambda_i be the only solution of
    sum_j m_j (lambda_i - D_ij)_+^2 = C^2,    (x)_+ = max(x, 0).
Then min b_i = lambda_i, reached at alpha_ij = m_j (lambda_i - D_ij)_+ / sum_k m_k (lambda_i - D_ik)_+ and nowhere else.

Proof. The left-hand side is 0 at lambda = 0, unbounded, and strictly rising where it is positive: one solution. For any
alpha,
    lambda_i - sum_j alpha_ij D_ij = sum_j alpha_ij (lambda_i - D_ij) <= sum_j alpha_ij (lambda_i - D_ij)_+
        = sum_j (alpha_ij / sqrt(m_j)) (sqrt(m_j) (lambda_i - D_ij)_+) <= sqrt( sum_j alpha_ij^2 / m_j ) C
by Cauchy and Schwarz, so b_i(alpha) >= lambda_i. Both are equalities exactly where alpha_ij is proportional to
m_j (lambda_i - D_ij)_+.

lambda_i rises with C, so nobody is dropped from the support {j: D_ij < lambda_i} when C grows. A coalition S is the
special case alpha_ij = m_j / m_S, so sum_i lambda_i is a lower bound on the objective of every partition.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedcollab.coalitions.inputs import Floats, read_inputs
from fedcollab.errors import number

#: numbers of the matrix that are in work at once
CHUNK = 2**19
#: Newton steps at most; about ten are needed
STEPS = 200


def personal_weights(distances: Any, quantities: ArrayLike | None, C: float) -> tuple[Floats, Floats]:
    """Find, for every client, the weights over all clients' data that minimise its own bound, and that bound.

    With lambda_i the solution of sum_j m_j (lambda_i - D_ij)_+^2 = C^2, the weights are proportional to
    m_j (lambda_i - D_ij)_+ and the bound, C sqrt(sum_j alpha_ij^2 / m_j) + sum_j alpha_ij D_ij, is lambda_i.

    By Cauchy and Schwarz, for any weights alpha of client i,
    lambda_i - sum_j alpha_ij D_ij <= sum_j (alpha_ij / sqrt(m_j)) (sqrt(m_j) (lambda_i - D_ij)_+)
    <= sqrt(sum_j alpha_ij^2 / m_j) C, with equality only for those weights: no weights have a lower bound. Clients
    farther than lambda_i get no weight, and lambda_i rises with C, so more clients get some. Coalitions are special
    weights, so the sum of the bounds is at most the objective of any partition.

    Parameters
    ----------
    distances : array_like or Distances
        N x N matrix in [0, 1] with a zero diagonal; row i is how far the others are from client i (asymmetric allowed).
        Pairs that were never measured get no weight.
    quantities : array_like or None
        Samples per client. None: what the `Distances` carries.
    C : float
        Weight of the generalisation term, above 0.

    Returns
    -------
    weights : ndarray of shape (N, N)
        Row i holds the weights of client i; they are at least 0 and sum to 1.
    bounds : ndarray of shape (N,)
        The lowest bound of every client.

    Raises
    ------
    InputError
        If an argument is wrong.

    Examples
    --------
    >>> weights, bounds = personal_weights([[0, 0.08], [0.08, 0]], [100, 100], C=1)
    >>> weights.round(2).tolist(), bounds.round(4).tolist()  # alone each has 0.1, together 0.1107
    ([[0.84, 0.16], [0.16, 0.84]], [0.0983, 0.0983])
    """
    C = number("C", C, above=0)
    inputs = read_inputs(distances, quantities)
    m, count = inputs.quantities, len(inputs.quantities)
    weights, bounds = np.empty((count, count)), np.empty(count)
    rows = max(1, CHUNK // count)
    for start in range(0, count, rows):
        part = slice(start, min(start + rows, count))
        seen = inputs.matrix[part].astype(np.float64)
        if inputs.unobserved is not None:
            seen[inputs.unobserved[part]] = np.inf
        bounds[part] = least_bounds(seen, m, C / np.sqrt(m[part]), C)
        share = m * np.maximum(bounds[part, None] - seen, 0.0)
        weights[part] = share / share.sum(axis=1, keepdims=True)
    return weights, bounds


def least_bounds(distances: Floats, masses: Floats, known: Floats, C: float) -> Floats:
    """Solve sum_j m_j (lambda - D_j)_+^2 = C^2 for lambda, for every row D of distances.

    `known` are values that no row's solution exceeds; the smaller, the fewer steps. The root of the sum is convex and
    rises in lambda, so that Newton's method comes down to the solution from any of them and never passes it.
    """
    found = known.copy()
    open_rows = np.arange(len(found))
    for _ in range(STEPS):
        over = np.maximum(found[open_rows, None] - distances[open_rows], 0.0)
        weighted = over * masses
        square = (weighted * over).sum(axis=1)
        root = np.sqrt(square)
        step = (root - C) * root / weighted.sum(axis=1)
        found[open_rows] -= np.maximum(step, 0.0)
        open_rows = open_rows[step > 1e-15 * found[open_rows]]
        if not open_rows.size:
            break
    return found
