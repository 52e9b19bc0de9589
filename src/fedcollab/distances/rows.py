"""A matrix of distances that gains, loses or renews one client's row; every other pair stays as it was measured."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import numpy as np

from fedcollab.distances import METHODS, Distances, estimate_distances
from fedcollab.errors import InputError
from fedcollab.progress import Progress, silent
from fedcollab.wire.runtime import Runtime


def measure(distances: Distances, federation: Runtime, name: str, progress: Progress = silent) -> Distances:
    """One client's distances to all others of the federation, by the method and settings of the whole matrix."""
    if distances.method not in METHODS:
        raise InputError(
            f"the distances of this run were {distances.method}, not estimated; a client's own cannot be added to them"
        )
    known = inspect.signature(METHODS[distances.method]).parameters
    options = {key: value for key, value in distances.settings.items() if key in known}
    seed = int(distances.settings.get("seed", 0))
    return estimate_distances(federation, method=distances.method, seed=seed, only=name, progress=progress, **options)


def pairs_of(row: Distances) -> int:
    """How many pairs were measured."""
    return int(np.triu(row.observed, 1).sum())


def added(distances: Distances, row: Distances, name: str) -> Distances:
    """The matrix with a newcomer at the end."""
    grown = _chosen(distances, [*range(len(distances.names)), -1], (*distances.names, name))
    return renewed(grown, row, name)


def renewed(distances: Distances, row: Distances, name: str, *, quantity_only: bool = False) -> Distances:
    """The matrix with one client's quantity and, unless `quantity_only`, distances taken from `row`."""
    at = distances.index(name)
    quantities = np.array(distances.quantities)
    quantities[at] = row.quantities[row.index(name)]
    if quantity_only:
        return replace(distances, quantities=quantities, **distances.spent_with(row))
    order = [row.index(other) for other in distances.names]
    raw, stderr, replicates = (_filled(distances, row, key, at, order) for key in ("raw", "stderr", "replicates"))
    assert raw is not None
    observed = np.array(distances.observed)
    observed[at] = observed[:, at] = row.observed[row.index(name), order]
    return replace(
        distances,
        raw=raw,
        stderr=stderr,
        replicates=replicates,
        observed=observed,
        quantities=quantities,
        **distances.spent_with(row),
    )


def removed(distances: Distances, name: str) -> Distances:
    """The matrix without one client."""
    keep = [position for position, other in enumerate(distances.names) if other != name]
    return _chosen(distances, keep, tuple(distances.names[position] for position in keep))


def _chosen(distances: Distances, keep: list[int], names: tuple[str, ...]) -> Distances:
    """Rows and columns by position; -1 is a client about whom nothing is known yet."""
    positions = np.array(keep)
    new = positions < 0
    grid = np.ix_(positions, positions)

    def taken(values: Any, blank: float) -> Any:
        if values is None:
            return None
        part = values[(..., *grid)].copy()
        part[..., new, :] = part[..., :, new] = blank
        part[..., np.arange(len(keep)), np.arange(len(keep))] = values[..., 0, 0, None]
        return part

    return replace(
        distances,
        raw=taken(distances.raw, np.nan),
        stderr=taken(distances.stderr, np.nan),
        replicates=taken(distances.replicates, np.nan),
        observed=taken(distances.observed, False),
        quantities=np.where(new, 1, distances.quantities[positions]),
        names=names,
    )


def _filled(distances: Distances, row: Distances, key: str, at: int, order: list[int]) -> Any:
    """`raw`, `stderr` or `replicates` with one client's row and column renewed; None where either side lacks it."""
    old, new = getattr(distances, key), getattr(row, key)
    if old is None or new is None or (key == "replicates" and len(old) != len(new)):
        return None
    values = np.array(old)
    values[..., at, :] = new[..., order[at], order]
    values[..., :, at] = values[..., at, :]
    return values
