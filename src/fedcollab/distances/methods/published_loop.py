"""The loop of Algorithm 1 as both runtimes share it: its settings, when pairs are validated, and when each stops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcollab.distances.request import Floats, Request

Active = NDArray[np.int64]


@dataclass(frozen=True)
class PublishedSettings:
    """Settings of `published`, with the paper's defaults; `published.estimate` describes them."""

    train: int
    labels: bool = True
    lr: float = 0.01
    batch: int = 32
    local_steps: int = 1
    rounds: int = 2000
    every: int = 10
    patience: int = 10
    hidden: int = 200
    min_samples: int = 1


def inputs(request: Request, settings: PublishedSettings) -> tuple[int, int]:
    """Return how many features and how many classes the samples have that a discriminator sees.

    Parameters
    ----------
    request : Request
        The clients.
    settings : PublishedSettings
        The settings of the method.

    Returns
    -------
    features, classes : int
        Numbers of a sample, and classes; 0 classes for samples without labels.
    """
    return request.features(target=settings.labels), request.classes if settings.labels else 0


def active_of_clients(mine: Mapping[str, list[int]], active: Active) -> dict[str, tuple[list[int], list[int]]]:
    """Return the active pairs of each client that has any: their positions in its own list, and in the list of all.

    Parameters
    ----------
    mine : mapping
        The positions of each client's pairs in the list of all (see `request.places`).
    active : array of int
        The positions of the active pairs in the list of all.
    """
    chosen = set(active.tolist())
    listed = {name: [k for k, pair in enumerate(pairs) if pair in chosen] for name, pairs in mine.items()}
    return {name: (own, [mine[name][k] for k in own]) for name, own in listed.items() if own}


def watch(
    advance: Callable[[Active, int], None],
    balanced: Callable[[Active], Floats],
    pairs: int,
    settings: PublishedSettings,
    request: Request,
    *,
    settle: bool = False,
) -> tuple[Floats, NDArray[np.int64]]:
    """Advance the active pairs round by round, validate them every so often, and stop each when it gets no better.

    Parameters
    ----------
    advance : callable
        `(active, round)`; trains the active pairs for one round.
    balanced : callable
        `(active)`; returns 2 BalAcc - 1 of the active pairs on held-out samples.
    pairs : int
        How many pairs there are.
    settings : PublishedSettings
        Rounds, rounds between validations, and patience.
    request : Request
        Its progress is called with (pairs that stopped, pairs).
    settle : bool
        Stop computing a pair that has reached 1, which nothing can better; its rounds are counted as if it went on.

    Returns
    -------
    best : array
        The best distance of each pair.
    taken : array of int
        The rounds that each pair took.
    """
    best, stale = np.full(pairs, -np.inf), np.zeros(pairs, dtype=np.int64)
    taken = np.zeros(pairs, dtype=np.int64)
    active = np.arange(pairs)
    for round_ in range(settings.rounds):
        advance(active, round_)
        taken[active] += 1
        if (round_ + 1) % settings.every and round_ + 1 < settings.rounds:
            continue
        value = balanced(active)
        better = value > best[active] + 1e-9
        best[active] = np.where(better, value, best[active])
        stale[active] = np.where(better, 0, stale[active] + 1)
        active = active[stale[active] < settings.patience]
        if settle:
            done = best[active] >= 1.0
            left = np.minimum(settings.rounds - round_ - 1, settings.every * (settings.patience - stale[active[done]]))
            taken[active[done]] += left
            active = active[~done]
        request.progress(pairs - len(active), pairs)
        if not len(active):
            break
    return best, taken
