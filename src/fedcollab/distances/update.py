"""A matrix of distances whose clients come, go or change: only their pairs are measured, every other stays as it was.

A pair's estimate depends on its two clients, the seed and the schema alone, so that a matrix that was completed under
the same schema is what it would have been if everyone had been there from the beginning.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.distances.estimate import METHODS, estimate_distances
from fedcollab.distances.request import Floats, Pair
from fedcollab.distances.result import Distances
from fedcollab.errors import InputError
from fedcollab.federation import Federation
from fedcollab.progress import Progress, silent


def missing_pairs(known: Distances, names: Sequence[str]) -> list[Pair]:
    """Return the pairs of these clients that were never measured.

    Parameters
    ----------
    known : Distances
        The matrix so far.
    names : sequence of str
        The clients; they need not be in the matrix.

    Returns
    -------
    list of (str, str)
        The pairs, each in order of name.
    """
    at = {name: position for position, name in enumerate(known.names)}
    return [
        (a, b)
        for a, b in combinations(sorted(names), 2)
        if a not in at or b not in at or not known.observed[at[a], at[b]]
    ]


def complete(known: Distances, federation: Federation, progress: Progress = silent) -> Distances:
    """Estimate the pairs that are missing and whose clients answer now.

    Parameters
    ----------
    known : Distances
        What was estimated while some clients were absent.
    federation : Federation
        The clients that are there now.
    progress : callable
        Called with (done, total).

    Returns
    -------
    Distances
        `known` with these pairs; clients that are new come last. `known` itself if it was given, not estimated.
    """
    pairs = missing_pairs(known, federation.names)
    if not pairs or known.method not in METHODS:
        return known
    fresh = _estimate(known, federation, progress, pairs=pairs)
    return _merged(known, fresh, fresh.observed, fresh.names)


def measure(known: Distances, federation: Federation, name: str, progress: Progress = silent) -> Distances:
    """Estimate one client's distances to all others of the federation, by the method and settings of `known`.

    Parameters
    ----------
    known : Distances
        The whole matrix.
    federation : Federation
        Holds the client and all others.
    name : str
        The client.
    progress : callable
        Called with (done, total).

    Returns
    -------
    Distances
        The federation's clients, with the pairs of this client observed.

    Raises
    ------
    InputError
        If `known` was given, not estimated.
    """
    if known.method not in METHODS:
        raise InputError(
            f"the distances of this run were {known.method}, not estimated; a client's own cannot be added to them"
        )
    return _estimate(known, federation, progress, only=name)


def pair_count(distances: Distances) -> int:
    """Return how many pairs were measured."""
    return int(np.triu(distances.observed, 1).sum())


def renewed(known: Distances, row: Distances, name: str, *, quantity_only: bool = False) -> Distances:
    """Return the matrix with one client's quantity and distances taken from a new estimate.

    Parameters
    ----------
    known : Distances
        The matrix.
    row : Distances
        What `measure` returned for the client.
    name : str
        The client; if it is new it comes last.
    quantity_only : bool
        Keep the client's distances as they were.

    Returns
    -------
    Distances
        The new matrix.
    """
    own = np.zeros_like(row.observed)
    if not quantity_only:
        own[row.index(name)] = own[:, row.index(name)] = True
    return _merged(known, row, own, [name])


def removed(known: Distances, name: str) -> Distances:
    """Return the matrix without one client.

    Parameters
    ----------
    known : Distances
        The matrix.
    name : str
        The client to remove.

    Returns
    -------
    Distances
        The smaller matrix.
    """
    keep = [position for position, other in enumerate(known.names) if other != name]
    grid: Any = (..., *np.ix_(keep, keep))
    return replace(
        known,
        raw=known.raw[grid],
        stderr=None if known.stderr is None else known.stderr[grid],
        replicates=None if known.replicates is None else known.replicates[grid],
        observed=known.observed[grid],
        quantities=known.quantities[keep],
        names=tuple(known.names[position] for position in keep),
    )


def _estimate(known: Distances, federation: Federation, progress: Progress, **which: Any) -> Distances:
    """Estimate some pairs by the method, settings and seed of the whole matrix."""
    options = inspect.signature(METHODS[known.method]).parameters
    return estimate_distances(
        federation,
        method=known.method,
        seed=int(known.settings.get("seed", 0)),
        progress=progress,
        **which,
        **{key: value for key, value in known.settings.items() if key in options},
    )


def _merged(known: Distances, fresh: Distances, taken: NDArray[np.bool_], renew: Iterable[str]) -> Distances:
    """Return `known` with the pairs in the mask `taken`, and the quantities of `renew`, from `fresh`.

    Standard errors or replicates are dropped where one of the two does not have as many.
    """
    names = (*known.names, *(name for name in fresh.names if name not in known.names))
    old: Any = np.ix_(*[[names.index(name) for name in known.names]] * 2)
    new: Any = np.ix_(*[[names.index(name) for name in fresh.names]] * 2)

    def merged(before: Floats | None, after: Floats | None) -> Floats | None:
        if before is None or not taken.any():
            return before
        if after is None or before.shape[:-2] != after.shape[:-2]:
            return None
        values: Floats = np.full((*before.shape[:-2], len(names), len(names)), np.nan)
        values[..., np.arange(len(names)), np.arange(len(names))] = 0.0
        values[(..., *old)] = before
        values[(..., *new)] = np.where(taken, after, values[(..., *new)])
        return values

    raw = merged(known.raw, fresh.raw)
    assert raw is not None
    observed = np.eye(len(names), dtype=bool)
    observed[old] = known.observed
    observed[new] = np.where(taken, fresh.observed, observed[new])
    quantities = dict(zip(known.names, known.quantities.tolist(), strict=True))
    quantities |= {name: int(fresh.quantities[fresh.index(name)]) for name in renew}
    return replace(
        known,
        raw=raw,
        names=names,
        quantities=np.array([quantities[name] for name in names]),
        stderr=merged(known.stderr, fresh.stderr),
        replicates=merged(known.replicates, fresh.replicates),
        observed=observed,
        **known.spent_with(fresh),
    )
