"""The loop of Algorithm 1 as both runtimes share it: its settings, when pairs are validated, and when each stops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcollab.distances.request import Floats, Request

Active = NDArray[np.int64]


@dataclass(frozen=True)
class PublishedSettings:
    """As in the paper; `train` is the same at every client, `every` and `patience` count rounds and validations."""

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


def watch(
    advance: Callable[[Active, int], None],
    balanced: Callable[[Active], Floats],
    pairs: int,
    settings: PublishedSettings,
    request: Request,
    *,
    settle: bool = False,
) -> tuple[Floats, NDArray[np.int64]]:
    """The loop that both ways share: advance the active pairs, validate every so often, stop each at its patience.

    With `settle`, a pair that has reached 1, which nothing can better, is not computed further: its rounds are counted
    as if it had been.
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
