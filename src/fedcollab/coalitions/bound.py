"""The error bound behind the coalitions: Section 3 of the paper and its appendix, as functions.

Symbols: alpha (weights over the N clients, sum 1), beta_j = m_j / m (share of client j), m_j (its samples), m (all
samples), d (VC dimension), delta (failure probability), D_ij (distance of the distributions i and j, in [0, 1]).

Theorem 3.3: with probability at least 1 - 2 delta,
    error_i <= best error + 2 phi(alpha, beta, m, delta) + 2 sum_{j != i} alpha_j D_ij.
"""

from __future__ import annotations

from math import log, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcollab.errors import InputError, number

Floats = NDArray[np.float64]


def capacity(d: float, m: float, delta: float) -> float:
    """C = sqrt(2 d log(2 m + 2) + log(4 / delta)): the capacity constant that the objective takes (Section 4.1).

    >>> round(capacity(d=5, m=1000, delta=0.05), 3)
    8.967
    """
    d, m = number("d", d, above=0), number("m", m, above=0)
    delta = _probability(delta)
    return sqrt(2 * d * log(2 * m + 2) + log(4 / delta))


def phi_vc(alpha: ArrayLike, quantities: ArrayLike, d: float, delta: float) -> float:
    """VC form (Eq. def:vc): sqrt( sum_j alpha_j^2 / beta_j * (2 d log(2 m + 2) + log(4 / delta)) / m )."""
    _, counts = _weights(alpha, quantities)
    return phi_empirical(alpha, quantities, capacity(d, float(counts.sum()), delta))


def phi_empirical(alpha: ArrayLike, quantities: ArrayLike, C: float) -> float:
    """Empirical form (Section 4.1): C / sqrt(m) * sqrt( sum_j alpha_j^2 / beta_j ).

    Inside a coalition S (alpha_j = m_j / m_S) it is C / sqrt(m_S).

    >>> phi_empirical([0.5, 0.5, 0.0], [50, 50, 300], C=10)
    1.0
    """
    weights, counts = _weights(alpha, quantities)
    return number("C", C, above=0) * sqrt(float((weights**2 / counts).sum()))


def phi_rademacher(alpha: ArrayLike, quantities: ArrayLike, complexities: ArrayLike, delta: float) -> float:
    """Weighted Rademacher form (appendix): sum_j alpha_j R_j + 3 sqrt(m/2 max_j (alpha_j / m_j)^2 log(2 / delta)).

    `complexities` are the clients' own empirical Rademacher complexities
    R_j = E_sigma sup_h (2 / m_j) sum_{k <= m_j} sigma_k loss(h(x_k), y_k). Their weighted sum bounds the complexity of
    the mixture. The paper prints alpha_ij / m_i, sums to m_i and leaves out 1 / m_j; this is the form that holds.
    """
    weights, counts = _weights(alpha, quantities)
    own = np.asarray(complexities, dtype=np.float64)
    if own.shape != weights.shape or not np.isfinite(own).all() or (own < 0).any():
        raise InputError(f"`complexities` must be {weights.size} finite numbers of at least 0, one per client")
    spread = counts.sum() / 2 * float((weights / counts).max()) ** 2 * log(2 / _probability(delta))
    return float(weights @ own) + 3 * sqrt(float(spread))


def error_bound(phi: float, alpha: ArrayLike, distances: ArrayLike, best: float = 0.0) -> float:
    """Theorem 3.3: best + 2 phi + 2 sum_{j != i} alpha_j D_ij, for one client.

    `distances` is the client's row of the matrix (its own entry 0), `best` the least error any model can have on it.

    >>> error_bound(phi=0.1, alpha=[0.5, 0.5], distances=[0.0, 0.2])
    0.4
    """
    row, weights = np.asarray(distances, dtype=np.float64), np.asarray(alpha, dtype=np.float64)
    if row.shape != weights.shape:
        raise InputError(f"`distances` (length {row.size}) must be as long as `alpha` (length {weights.size})")
    return float(best + 2 * phi + 2 * (weights @ row))


def d_threshold(quantity: float, total: float, C: float) -> float:
    """D_thr = C sqrt(m) / (2 m_i): how picky client i is (Corollaries 3.4 and 3.5).

    A coalition that minimises client i's bound holds nobody farther from it than this. It falls with m_i: clients with
    more data are more picky. It holds over coalitions (weights proportional to quantity), not over all weights: with
    m = (100, 100), C = 1, D = 0.08 > D_thr = 0.0707, alpha = (0.8, 0.2) still beats training alone.

    >>> round(d_threshold(100, 200, C=1), 4)
    0.0707
    """
    quantity, total = number("quantity", quantity, above=0), number("total", total, above=0)
    return number("C", C, above=0) * sqrt(total) / (2 * quantity)


def fit_C(quantities: ArrayLike, errors: ArrayLike) -> float:
    """C from learning curves: least squares of error = a + C / sqrt(m) over hold-out errors at several m.

    `quantities` and `errors` have one shape; with two dimensions each row is one client with an `a` of its own.
    The slope is never below 0 (an error that grows with data says nothing about C).

    >>> round(fit_C([25, 50, 100], [0.5, 0.4414, 0.4]), 2)
    1.0
    """
    m, e = (np.atleast_2d(np.asarray(values, dtype=np.float64)) for values in (quantities, errors))
    if m.shape != e.shape or m.shape[1] < 2:
        raise InputError(
            f"`errors` (shape {e.shape}) must have the shape of `quantities` {m.shape} with at least 2 sizes a client"
        )
    if not (np.isfinite(m).all() and np.isfinite(e).all() and (m > 0).all()):
        raise InputError("`quantities` must be positive and `errors` finite")
    x = 1 / np.sqrt(m)
    x -= x.mean(axis=1, keepdims=True)
    spread = float((x * x).sum())
    if spread == 0:
        raise InputError("`quantities` must hold at least 2 different sizes per client")
    return max(0.0, float((x * (e - e.mean(axis=1, keepdims=True))).sum()) / spread)


def _weights(alpha: ArrayLike, quantities: ArrayLike) -> tuple[Floats, Floats]:
    weights, counts = np.asarray(alpha, dtype=np.float64), np.asarray(quantities, dtype=np.float64)
    if weights.ndim != 1 or weights.shape != counts.shape:
        raise InputError(f"`alpha` (shape {weights.shape}) must have one weight per quantity (shape {counts.shape})")
    if not (np.isfinite(counts).all() and (counts > 0).all()):
        raise InputError("`quantities` must be positive finite numbers")
    if not ((weights >= 0).all() and abs(weights.sum() - 1) < 1e-9):
        raise InputError(f"`alpha` must be weights of at least 0 that sum to 1 (they sum to {weights.sum():g})")
    return weights, counts


def _probability(delta: float) -> float:
    delta = number("delta", delta, above=0)
    if delta >= 1:
        raise InputError(f"`delta` (={delta!r}) must be a probability below 1")
    return delta
