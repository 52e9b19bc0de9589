"""Own weights: each client's model learns from all clients, weighed as is best for that client.

    w_i = argmin_w  sum_j alpha_ij L_j(w),        alpha_ij >= 0,  sum_j alpha_ij = 1

with L_j the mean loss of client j: the error that the bound of the paper is about when client i may weigh every
client's data as it likes (`coalitions.personal_weights` gives the alpha that minimise the bound). Training is FedAvg
for each row of weights: every client with a weight above 0 trains the row's model, and the server averages with the
row's weights,

    w_i <- sum_j alpha_ij w_ij,     w_ij = w_i after client j's steps.

On quadratic losses of equal curvature its fixed point is sum_j alpha_ij w_j*. (Mixing the clients' own models with
alpha in every round is something else: it weighs by the powers of alpha.) A round costs one local training for every
weight above 0, so clients with like rows share one: `share_rows`.

Bao, Wang, Wu, He: Optimizing the collaboration structure in cross-silo federated learning. ICML 2023, Theorem 3.3.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcollab.errors import InputError, number
from fedcollab.training.hooks import Algorithm, register

#: a weight below this share of its row is left out
LEAST = 0.005
#: two rows that differ by no more than this (half the sum of differences) are one
ALIKE = 0.02


@register("own-weights")
class OwnWeights(Algorithm):
    """FedAvg whose models each learn from all clients by weights of their own (`train(..., weights=...)`)."""

    weighted = True


def share_rows(
    weights: ArrayLike, names: Sequence[str], most: int
) -> tuple[list[list[str]], dict[int, dict[str, float]]]:
    """Group clients whose rows of weights are alike, so that they share one model.

    Parameters
    ----------
    weights : array_like
        N x N; row i holds what client i wants every client to weigh: at least 0, sum 1, own weight above 0.
    names : sequence of str
        The clients, in the order of rows and columns.
    most : int
        The most models; rows that are nearest to each other (mean of half the sum of differences) are joined first.

    Returns
    -------
    tuple
        The groups of clients that share a model, and for each group (its position) what each client weighs in it: the
        mean of its members' rows, without weights below `LEAST`.

    Raises
    ------
    InputError
        If the weights are not N x N, negative, do not sum to 1 in each row, or a client has no weight in its own row.

    Examples
    --------
    >>> groups, rows = share_rows([[0.6, 0.4, 0], [0.6, 0.4, 0], [0, 0.2, 0.8]], ["a", "b", "c"], 3)
    >>> groups, rows[1]
    ([['a', 'b'], ['c']], {'b': 0.2, 'c': 0.8})
    """
    from scipy.cluster.hierarchy import fcluster, linkage  # type: ignore[import-untyped]

    number("rows", most, at_least=1, whole=True)
    rows = np.asarray(weights, dtype=np.float64)
    count = len(names)
    if rows.shape != (count, count) or not np.isfinite(rows).all():
        raise InputError(f"`weights` has shape {rows.shape}; expected finite numbers, {count} x {count}")
    if rows.min() < 0 or not np.allclose(rows.sum(axis=1), 1.0, atol=1e-6) or not (np.diag(rows) > 0).all():
        raise InputError("`weights` must be at least 0, sum to 1 in each row, and be above 0 on the diagonal")
    tree = linkage(rows, "average", metric="cityblock")
    alike = fcluster(tree, 2 * ALIKE, criterion="distance")
    labels = alike if alike.max() <= most else fcluster(tree, most, criterion="maxclust")
    order = list(dict.fromkeys(labels.tolist()))
    groups = [[name for name, label in zip(names, labels, strict=True) if label == each] for each in order]
    shared = {}
    for position, each in enumerate(order):
        mean: NDArray[np.float64] = rows[labels == each].mean(axis=0)
        kept = np.where((mean >= LEAST) | (labels == each), mean, 0.0)
        kept /= kept.sum()
        shared[position] = {name: float(w) for name, w in zip(names, kept.tolist(), strict=True) if w > 0}
    return groups, shared
