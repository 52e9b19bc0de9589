"""The design of cross-fitted discriminators: what is trained for each pair, and the accelerated descent for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcollab.distances.methods.cross_client import ClientPlan, models
from fedcollab.distances.methods.heads import Head, find
from fedcollab.distances.request import Pair, places


@dataclass(frozen=True)
class CrossSettings:
    """Settings of `cross`, which `cross.estimate` describes; training sizes are multiples of `min_samples`."""

    head: str = "free"
    folds: int = 5
    rounds: int = 40
    cap: int = 256
    repeats: int = 4
    replicates: int = 100
    min_samples: int = 1
    label_counts: str = "drawn"


@dataclass(frozen=True, eq=False)
class Design:
    """What is trained for each pair.

    Parameters
    ----------
    settings : CrossSettings
        The settings of the method.
    classes, features : int
        Labels in the federation, and numbers that stand for one sample.
    seed : int
        Folds and replicates are drawn from it.
    pairs : list of (str, str)
        The pairs; the lists below have one entry a pair.
    sizes : list of int
        Training samples a side.
    repeats : list of int
        How often samples are divided into folds.
    scales : list of float
        What features are divided by.
    """

    settings: CrossSettings
    classes: int
    features: int
    seed: int
    pairs: list[Pair]
    sizes: list[int]
    repeats: list[int]
    scales: list[float]

    @property
    def head(self) -> Head:
        """Return the family of discriminators."""
        return find(self.settings.head)

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape of one model's weights: (rows, features + 1)."""
        return self.head.rows(self.classes), self.features + 1

    def models(self) -> list[tuple[int, int, int, int]]:
        """Return (pair, direction, repeat, fold) of every model, in the order of the stacked weights."""
        return models(self.head, self.settings.folds, self.repeats)

    def of(self, chosen: list[int]) -> Design:
        """Return the design of some of the pairs, given by their positions."""
        lists = {key: [getattr(self, key)[p] for p in chosen] for key in ("pairs", "sizes", "repeats", "scales")}
        return Design(self.settings, self.classes, self.features, self.seed, **lists)

    def client_plans(self) -> dict[str, ClientPlan]:
        """Return the plan of each client: its own pairs, in the order of `pairs`."""
        return {
            name: ClientPlan(
                head=self.settings.head,
                classes=self.classes,
                seed=self.seed,
                folds=self.settings.folds,
                replicates=self.settings.replicates,
                sizes=[self.sizes[p] for p in mine],
                repeats=[self.repeats[p] for p in mine],
                targets=[int(self.pairs[p][0] == name) for p in mine],
                scales=[self.scales[p] for p in mine],
                min_samples=self.settings.min_samples,
                label_counts=self.settings.label_counts,
            )
            for name, mine in places(self.pairs).items()
        }

    def rows(self) -> dict[str, Tensor]:
        """Return for each client the positions of its models in the stack of all models."""
        by_pair: list[list[int]] = [[] for _ in self.pairs]
        for position, (pair, *_) in enumerate(self.models()):
            by_pair[pair].append(position)
        return {name: torch.tensor([m for p in mine for m in by_pair[p]]) for name, mine in places(self.pairs).items()}


def accelerate(
    step: Callable[[Tensor], Tensor], w: Tensor, rounds: int, report: Callable[[int], None] | None = None
) -> Tensor:
    """Minimise by Nesterov's method: w' = step(v), v' = w' + t / (t + 3) (w' - w).

    Parameters
    ----------
    step : callable
        One step of gradient descent from v.
    w : Tensor
        The weights to start from.
    rounds : int
        How many steps to take.
    report : callable, optional
        Called with the number of steps done.
    """
    look = w
    for t in range(rounds):
        stepped = step(look)
        look = stepped + t / (t + 3) * (stepped - w)
        w = stepped
        if report is not None:
            report(t + 1)
    return w
