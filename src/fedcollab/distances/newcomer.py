"""A new client: its distances to everyone, without estimating the rest again.

A pair's estimate depends on its two clients, the seed and the schema alone, so that a matrix grows by one row and one
column and is what estimating all pairs under that schema would have given. Section 4.4 of the paper (new training
clients).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fedcollab.data.client import ClientData
from fedcollab.distances.estimate import estimate_distances
from fedcollab.distances.methods.pairs import Floats
from fedcollab.distances.result import Distances
from fedcollab.errors import InputError
from fedcollab.federation.prepare import Schema, ask_everyone
from fedcollab.progress import Progress, silent
from fedcollab.wire import connect
from fedcollab.wire.runtime import Runtime


def estimate_newcomer(
    known: Distances,
    clients: Iterable[ClientData] | Runtime,
    newcomer: str,
    *,
    schema: Schema | None = None,
    runtime: str = "vectorised",
    device: str = "auto",
    scale: str = "auto",
    progress: Progress = silent,
) -> Distances:
    """`known` with one more client, last.

    known      the distances of the other clients, with the method, settings and seed to go on with
    clients    the newcomer and all clients of `known`, or a prepared federation of them
    newcomer   the new client's name
    schema     what the federation agreed on when `known` was estimated (`federation.schema`); without it, one is agreed
               on anew, newcomer included, and features may be scaled a little differently than in the known pairs
    """
    federation = connect(clients, runtime, device)
    expected = sorted({*known.names, newcomer})
    if newcomer in known.names or list(federation.names) != expected:
        raise InputError(
            f"`clients` (={list(federation.names)}) must be the newcomer (={newcomer!r}) and the {len(known.names)} "
            "clients of `known`"
        )
    if schema is not None and federation.schema is None:
        adopt(federation, schema)
    options = {key: value for key, value in known.settings.items() if key not in ("seed", "head")}
    seed = int(known.settings.get("seed", 0))
    if known.method == "cross":
        options["head"] = known.settings.get("head", "free")
    fresh = estimate_distances(
        federation, method=known.method, seed=seed, scale=scale, only=newcomer, progress=progress, **options
    )
    return _joined(known, fresh, newcomer)


def adopt(federation: Runtime, schema: Schema) -> None:
    """Have every client apply a schema that was agreed on before."""
    common: dict[str, Any] = {"scale": "none", "test_share": schema.test_share, "seed": schema.seed}
    federation.described = ask_everyone(federation, "describe", common)
    ask_everyone(federation, "prepare", {"schema": schema.to_json()})
    federation.schema = schema


def _joined(known: Distances, fresh: Distances, newcomer: str) -> Distances:
    names = (*known.names, newcomer)
    row = fresh.index(newcomer)
    order = [fresh.index(name) for name in known.names]

    def grown(old: Floats | None, new: Floats | None) -> Floats | None:
        if old is None or new is None or old.shape[:-2] != new.shape[:-2]:
            return None
        matrix: Floats = np.zeros((*old.shape[:-2], len(names), len(names)))
        matrix[..., :-1, :-1] = old
        matrix[..., -1, :-1] = matrix[..., :-1, -1] = new[..., row, order]
        return matrix

    raw = grown(known.raw, fresh.raw)
    assert raw is not None
    return Distances(
        raw=raw,
        names=names,
        quantities=np.append(known.quantities, fresh.quantities[row]),
        stderr=grown(known.stderr, fresh.stderr),
        replicates=grown(known.replicates, fresh.replicates),
        method=known.method,
        settings=known.settings,
        **known.spent_with(fresh),
    )
