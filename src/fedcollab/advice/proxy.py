"""Proxies: the held-out squared error of ridge classifiers for any weighting of clients, from sums alone.

For weights alpha over the clients' mean losses, trained on all folds but f,

    A = sum_j alpha_j G_j / n_j,    B = sum_j alpha_j B_j / n_j,    W = (A + rho / m_alpha I)^-1 B,
    1 / m_alpha = sum_j alpha_j^2 / n_j           (the rows that the weighting is worth)

and on client i's fold f the squared error (of labels the Brier score) of the scores W^T z is

    ( tr(W^T G_f W) - 2 tr(W^T B_f) + s_f ) / n_f,      s_f = sum t^T t: n_f of labels, sum t^2 of a numeric target.

With an own intercept every client's sums are centred within the client first (a Schur complement of the same sums), and
client i's intercept is its mean label less the mean score: b_i = t_i - V^T x_i. The same serves for coefficients of
single columns that are each client's own. The best of a few ridge strengths rho is taken, for all clients together, on
the same held-out folds.

It is a proxy: a linear model with squared loss. It ranks who should learn from whom; the model that will be trained is
measured afterwards (`advice.pilot`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcollab.advice.sums import impossible_beside, ridge_sums, squared_length
from fedcollab.distances.plausible import LONGER
from fedcollab.errors import FedcollabWarning
from fedcollab.federation import Federation
from fedcollab.wire.absence import reasons
from fedcollab.wire.message import Message

Floats = NDArray[np.float64]

FOLDS = 4
#: columns above which samples are projected
MOST_COLUMNS = 200
#: ridge strengths that are tried, in rows' worth
STRENGTHS = (1.0, 10.0, 100.0)
#: added to the diagonal of a client's own block, so that a constant column does no harm
TINY = 1e-9


@dataclass(frozen=True, eq=False)
class Training:
    """Every client's sums over the rows that are trained on, as means over rows.

    Parameters
    ----------
    products, labelled : arrays
        [clients, D, D] and [clients, D, K]: G / n and B / n.
    rows : array
        n of each client.
    """

    products: Floats
    labelled: Floats
    rows: Floats


@dataclass(frozen=True, eq=False)
class Sums:
    """The sums of all clients whose rows could be cut into folds.

    Parameters
    ----------
    names : tuple of str
        The clients.
    products, labelled, rows, squares : lists of arrays
        For each client G, B, n and s of each of its folds (see `advice.sums`).
    """

    names: tuple[str, ...]
    products: list[Floats]
    labelled: list[Floats]
    rows: list[Floats]
    squares: list[Floats]

    @classmethod
    def ask(cls, federation: Federation, seed: int) -> Sums:
        """Ask every client for its sums: one message each.

        Parameters
        ----------
        federation : Federation
            The clients.
        seed : int
            Everything random is derived from it.
        """
        message = {"folds": FOLDS, "most": MOST_COLUMNS, "seed": seed}
        replies = federation.call_all(ridge_sums, message, partial=True)
        fit = {name: reply for name, reply in replies.items() if "unfit" not in reply}
        if federation.runtime.checks:
            fit = _plausible(federation, fit)
        fit = {name: {**reply, "squares": reply.get("squares", reply["rows"])} for name, reply in fit.items()}
        keys = ("products", "labelled", "rows", "squares")
        parts = ([reply[key].astype(np.float64) for reply in fit.values()] for key in keys)
        return cls(tuple(fit), *parts)

    def training(self, fold: int) -> Training:
        """Return each client's means over the rows outside a fold; a client with fewer folds leaves out one of its own.

        Parameters
        ----------
        fold : int
            The fold that is left out.
        """
        outside = [np.arange(len(rows)) != fold % len(rows) for rows in self.rows]
        n = np.array([rows[mask].sum() for rows, mask in zip(self.rows, outside, strict=True)])
        products, labelled = (
            np.stack([part[mask].sum(axis=0) for part, mask in zip(parts, outside, strict=True)]) / n[:, None, None]
            for parts in (self.products, self.labelled)
        )
        return Training(products, labelled, n)

    def held_out(self, weights: Floats, *, own: Sequence[int] = ()) -> Floats:
        """Return the held-out squared error of each client with its own row of weights, at the best ridge strength.

        Parameters
        ----------
        weights : array
            [clients, clients], rows as in `fedcollab.personal_weights`.
        own : sequence of int
            Columns whose coefficients are each client's own: -1 for the intercept, none for one model without.
        """
        rows, which = np.unique(weights.round(9), axis=0, return_inverse=True)
        which = which.reshape(-1)
        errors = np.zeros((len(STRENGTHS), len(self.names)))
        for fold in range(FOLDS):
            seen = self.training(fold)
            common = _without_own(seen, own)
            for row, alpha in enumerate(rows):
                members = np.flatnonzero(which == row).tolist()
                worth = 1 / (alpha**2 / seen.rows).sum()
                products, labelled = np.einsum("c,cde->de", alpha, common[0]), np.einsum("c,cdk->dk", alpha, common[1])
                for position, strength in enumerate(STRENGTHS):
                    fitted = np.linalg.solve(products + strength / worth * np.eye(len(products)), labelled)
                    for client in members:
                        errors[position, client] += self._error(client, fold, _with_own(seen, own, client, fitted))
        errors /= FOLDS
        best: Floats = errors[int(np.argmin(errors.mean(axis=1)))]
        return best

    def _error(self, client: int, fold: int, fitted: Floats) -> float:
        """Return the squared error of a classifier, [D, K], on one fold of a client."""
        fold %= len(self.rows[client])
        parts = (self.products, self.labelled, self.rows, self.squares)
        products, labelled, n, squares = (part[client][fold] for part in parts)
        return float((fitted * (products @ fitted - 2 * labelled)).sum() / n + squares / n)


def _plausible(federation: Federation, replies: Mapping[str, Message]) -> dict[str, Message]:
    """Return the replies that can be, beside each other and what the clients said before; name the others."""
    schema, doubts = federation.schema, dict[str, str]()
    features = int(np.prod(schema.shape))
    quantities = {name: int(federation.described[name]["quantity"]) for name in federation.names}
    scaled = schema.columns is not None or schema.settings["scale"] == "features"
    lengths = {name: squared_length(reply) for name, reply in replies.items()}
    for name, reply in replies.items():
        others = sum(length for other, length in lengths.items() if other != name)
        longest = float(features * sum(quantities.values())) if scaled else others
        wrong = impossible_beside(
            reply,
            (1 + min(features, MOST_COLUMNS), schema.outputs),
            quantities[name],
            LONGER * longest if scaled or len(lengths) > 2 else np.inf,
        )
        doubts |= {} if wrong is None else {name: wrong}
    if doubts:
        warnings.warn(f"advice goes on without the sums of {reasons(doubts)}", FedcollabWarning, stacklevel=4)
    return {name: reply for name, reply in replies.items() if name not in doubts}


def coalition_weights(coalitions: Sequence[Sequence[str]], quantities: Mapping[str, int]) -> Floats:
    """Return coalitions as rows of weights: the members of a client's coalition weigh by their samples, others 0.

    Parameters
    ----------
    coalitions : sequence of sequences of str
        The coalitions, which partition the clients.
    quantities : mapping of int
        Every client's samples; rows and columns are in this order.

    Examples
    --------
    >>> coalition_weights([["a", "c"], ["b"]], {"a": 1, "b": 5, "c": 3}).tolist()
    [[0.25, 0.0, 0.75], [0.0, 1.0, 0.0], [0.25, 0.0, 0.75]]
    """
    names = list(quantities)
    weights = np.zeros((len(names), len(names)))
    for members in coalitions:
        places = [names.index(name) for name in members]
        masses = np.array([quantities[name] for name in members], dtype=np.float64)
        weights[np.ix_(places, places)] = masses / masses.sum()
    return weights


def _without_own(seen: Training, own: Sequence[int]) -> tuple[Floats, Floats]:
    """Return every client's means with what its own coefficients explain taken out: a Schur complement of its sums."""
    if not len(own):
        return seen.products, seen.labelled
    block = seen.products[:, :, own][:, own] + TINY * np.eye(len(own))
    explained = np.linalg.solve(block, seen.products[:, own])
    products = seen.products - seen.products[:, :, own] @ explained
    labelled = seen.labelled - seen.products[:, :, own] @ np.linalg.solve(block, seen.labelled[:, own])
    return products, labelled


def _with_own(seen: Training, own: Sequence[int], client: int, fitted: Floats) -> Floats:
    """Return a classifier with one client's own coefficients, those that fit its training rows best."""
    if not len(own):
        return fitted
    shared = fitted.copy()
    shared[list(own)] = 0.0
    block = seen.products[client][np.ix_(own, own)] + TINY * np.eye(len(own))
    left = seen.labelled[client][list(own)] - seen.products[client][list(own)] @ shared
    shared[list(own)] = np.linalg.solve(block, left)
    return shared
