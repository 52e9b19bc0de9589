"""Distances that were left unobserved because a client was absent: estimated when it is back, and nothing else.

A pair's estimate depends on its two clients, the seed and the schema alone, so that a matrix completed under the same
schema is what it would have been without the absence.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from fedcollab.distances.estimate import METHODS, estimate_distances
from fedcollab.distances.methods.pairs import Floats, Pair
from fedcollab.distances.result import Distances
from fedcollab.progress import Progress, silent
from fedcollab.wire.runtime import Runtime


def missing_pairs(known: Distances, names: Sequence[str]) -> list[Pair]:
    """Pairs of these clients that were never measured, each in order of name."""
    at = {name: position for position, name in enumerate(known.names)}
    return [
        (a, b)
        for a, b in combinations(sorted(names), 2)
        if a not in at or b not in at or not known.observed[at[a], at[b]]
    ]


def complete(known: Distances, federation: Runtime, progress: Progress = silent) -> Distances:
    """`known` with every pair that is missing and whose clients answer now; clients that are new come last."""
    pairs = missing_pairs(known, federation.names)
    if not pairs or known.method not in METHODS:
        return known
    options = inspect.signature(METHODS[known.method]).parameters
    fresh = estimate_distances(
        federation,
        method=known.method,
        seed=int(known.settings.get("seed", 0)),
        pairs=pairs,
        progress=progress,
        **{key: value for key, value in known.settings.items() if key in options},
    )
    names = (*known.names, *(name for name in fresh.names if name not in known.names))
    old: Any = np.ix_(*[[names.index(name) for name in known.names]] * 2)
    new: Any = np.ix_(*[[names.index(name) for name in fresh.names]] * 2)

    def merged(before: Floats | None, after: Floats | None) -> Floats | None:
        if before is None or after is None or before.shape[:-2] != after.shape[:-2]:
            return None
        values: Floats = np.full((*before.shape[:-2], len(names), len(names)), np.nan)
        values[..., np.arange(len(names)), np.arange(len(names))] = 0.0
        values[(..., *old)] = before
        values[(..., *new)] = np.where(np.isfinite(after) & fresh.observed, after, values[(..., *new)])
        return values

    raw = merged(known.raw, fresh.raw)
    assert raw is not None
    quantities = dict(zip(known.names, known.quantities.tolist(), strict=True))
    quantities |= dict(zip(fresh.names, fresh.quantities.tolist(), strict=True))
    return replace(
        known,
        raw=raw,
        names=names,
        quantities=np.array([quantities[name] for name in names]),
        stderr=merged(known.stderr, fresh.stderr),
        replicates=merged(known.replicates, fresh.replicates),
        observed=np.isfinite(raw),
        **known.spent_with(fresh),
    )
