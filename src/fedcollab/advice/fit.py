"""The bound, fitted to what the pilots measured: what more data and what more distance are worth, in the user's units.

With weights alpha of client i over the clients, the paper's bound adds to the least error C s_i + sum_j alpha_ij D_ij,

    s_i(alpha) = sqrt( sum_j alpha_ij^2 / m_j ).

The pilots measured losses of several weightings at the same clients. Against training alone (alpha_ii = 1),

    loss_i(alone) - loss_i(alpha) = a ( s_i(alone) - s_i(alpha) ) - b sum_j alpha_ij D_ij,        a, b >= 0,

is fitted by least squares, each difference weighted by what is known of its variance: a client effect cancels in the
difference. Distances carry noise, which draws b to 0: with V the variance of the sums of distances over clients and
weightings and E the mean of the variance that their standard errors give, b is multiplied by V / (V - E), at most by 2.
C = a / b is the C of the bound for this model and these data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: the share of the variance of measured gains from which on the fit's predictions are worth telling
ENOUGH = 0.1


@dataclass(frozen=True)
class BoundFit:
    """What one unit of each term of the bound is worth.

    Parameters
    ----------
    a, b : float
        Loss for a unit of the generalisation term, and of the shift term; at least 0.
    explained : float
        The share of the variance of the measured gains that the fit explains, beyond their mean; may be below 0.
    pairs : int
        How many measured gains it was fitted to.
    """

    a: float
    b: float
    explained: float
    pairs: int

    @property
    def C(self) -> float | None:
        """a / b, the C of the bound for this model and these data; None where distance costs nothing."""
        return self.a / self.b if self.a > 0 and self.b > 0 else None

    @property
    def tells(self) -> bool:
        """Whether it explains enough of how gains differ (`ENOUGH`) for its predictions to be told."""
        return self.explained >= ENOUGH

    def gain(self, weights: Floats, distances: Floats, quantities: Floats) -> Floats:
        """Return the gain over training alone that the fit predicts for each client with its row of weights.

        Parameters
        ----------
        weights : array
            N x N.
        distances : array
            N x N.
        quantities : array
            Samples of each client.
        """
        more, apart = bound_terms(weights, distances, quantities)
        return self.a * more - self.b * apart

    def partition_gain(self, labels: NDArray[np.int64], distances: Floats, quantities: Floats) -> Floats:
        """Return the gain over training alone that the fit predicts for each client in coalitions.

        Parameters
        ----------
        labels : array of int
            Each client's coalition.
        distances : array
            N x N.
        quantities : array
            Samples of each client.

        Examples
        --------
        >>> fit = BoundFit(a=1.0, b=0.1, explained=0.5, pairs=8)
        >>> fit.partition_gain(np.array([0, 0, 1]), np.full((3, 3), 0.2) - 0.2 * np.eye(3), np.full(3, 100.0)).round(4)
        array([0.0193, 0.0193, 0.    ])
        """
        together = (labels[:, None] == labels) * quantities
        return self.gain(together / together.sum(axis=1, keepdims=True), distances, quantities)

    def as_dict(self) -> dict[str, Any]:
        """Return the fit as plain values."""
        return {"a": self.a, "b": self.b, "C": self.C, "explained": self.explained, "pairs": self.pairs}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> BoundFit:
        """Return the fit that `as_dict` gave; one of nothing where the mapping is empty.

        Parameters
        ----------
        content : mapping
            The plain values.
        """
        a, b, explained = (float(content.get(key, 0.0)) for key in ("a", "b", "explained"))
        return cls(a, b, explained, int(content.get("pairs", 0)))


def bound_terms(weights: Floats, distances: Floats, quantities: Floats) -> tuple[Floats, Floats]:
    """Return, for each client, by how much its generalisation term falls against training alone, and its shift term.

    Parameters
    ----------
    weights, distances : arrays
        N x N.
    quantities : array
        Samples of each client.

    Examples
    --------
    >>> more, apart = bound_terms(np.full((2, 2), 0.5), np.array([[0, 0.2], [0.2, 0]]), np.array([100.0, 100.0]))
    >>> more.round(4).tolist(), apart.tolist()
    ([0.0293, 0.0293], [0.1, 0.1])
    """
    more: Floats = 1 / np.sqrt(quantities) - np.sqrt((weights**2 / quantities).sum(axis=1))
    apart: Floats = (weights * distances).sum(axis=1)
    return more, apart


def fit_bound(
    gains: Floats, more: Floats, apart: Floats, variances: Floats, apart_variances: Floats | None = None
) -> BoundFit:
    """Fit the bound to measured gains.

    Parameters
    ----------
    gains : array
        Measured gains over training alone, of several clients and weightings.
    more, apart : arrays
        The two terms of each (see `bound_terms`).
    variances : array
        The variance of each gain.
    apart_variances : array, optional
        The variance of each sum of distances, from the standard errors of the distances.

    Returns
    -------
    BoundFit
        The fit; a = b = 0 where nothing was measured.

    Examples
    --------
    >>> fit = fit_bound(np.array([0.1, 0.2, 0.05]), np.array([0.1, 0.2, 0.2]), np.array([0.0, 0.0, 0.3]), np.ones(3))
    >>> round(fit.a, 6), round(fit.b, 6), round(fit.explained, 6)
    (1.0, 0.5, 1.0)
    """
    from scipy.optimize import nnls  # type: ignore[import-untyped]

    if not len(gains):
        return BoundFit(0.0, 0.0, 0.0, 0)
    root = 1 / np.sqrt(np.maximum(variances, 1e-12))
    (a, b), _ = nnls(np.stack([more, -apart], axis=1) * root[:, None], gains * root)
    if apart_variances is not None and len(apart) > 2:
        spread, noise = float(apart.var()), float(np.nanmean(apart_variances))
        b *= min(2.0, spread / (spread - noise)) if spread > noise else 2.0
    left = (((gains - a * more + b * apart) * root) ** 2).sum()
    mean = np.average(gains, weights=root**2)
    whole = (((gains - mean) * root) ** 2).sum()
    return BoundFit(float(a), float(b), float(1 - left / whole) if whole > 0 else 0.0, len(gains))
