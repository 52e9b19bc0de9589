"""The default estimator: cross-fitted discriminators, every sample validates, nothing is picked.

    D_ij = mean over i of [f = i] + mean over j of [f = j] - 1  =  2 BalAcc(f) - 1

with f trained on other samples than it is judged on. For every pair the clients' samples are cut into folds
(`folds.py`), several times over; for each fold one linear discriminator per label (`heads.Free`) is trained
federatedly for a fixed number of rounds on min(samples of the smaller client that a fold leaves, `cap`) samples a side,
and judged on the fold. One round is one full-batch step at each client and plain averaging (Algorithm 1 of the paper);
the server adds Nesterov's extrapolation, which a client cannot see. All models of all pairs travel in the same
messages.

A signed value, so that the estimate of a true 0 is 0 on average. Reference: Bao, Wang, Wu, He (ICML 2023), Section 4.1;
Chernozhukov et al., "Double/debiased machine learning" (2018), for cross-fitting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcollab.distances.methods.cross_client import Part, check, models
from fedcollab.distances.methods.heads import Head, find
from fedcollab.distances.methods.pairs import Estimate, Floats, Pair, Request, places
from fedcollab.distances.sampling import folds as folding
from fedcollab.errors import number
from fedcollab.wire.message import Message
from fedcollab.wire.runtime import Cost
from fedcollab.wire.vectorised import Vectorised

Replies = dict[str, Message]


@dataclass(frozen=True)
class Settings:
    """`cap`: training samples a side at most; `repeats`: splits of a pair at most (large pairs take fewer).

    `min_samples`: see `distances.floor`; training sizes are multiples of it. `label_counts`: see `distances.sampling`.
    """

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
    """What is trained for each pair: training size a side, repeats, and the scale of the features."""

    settings: Settings
    classes: int
    features: int
    seed: int
    pairs: list[Pair]
    sizes: list[int]
    repeats: list[int]
    scales: list[float]

    @property
    def head(self) -> Head:
        """The family of discriminators."""
        return find(self.settings.head)

    @property
    def shape(self) -> tuple[int, int]:
        """Weights of one model."""
        return self.head.rows(self.classes), self.features + 1

    def models(self) -> list[tuple[int, int, int, int]]:
        """(pair, direction, repeat, fold) of every model."""
        return models(self.head, self.settings.folds, self.repeats)

    def of(self, chosen: list[int]) -> Design:
        """The same for some of the pairs."""
        lists = {key: [getattr(self, key)[p] for p in chosen] for key in ("pairs", "sizes", "repeats", "scales")}
        return Design(self.settings, self.classes, self.features, self.seed, **lists)

    def parts(self) -> dict[str, Part]:
        """What each client is told: its own pairs, in the order of `pairs`."""
        return {
            name: Part(
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
        """For each client, the positions of its models in the stack of all models."""
        by_pair: list[list[int]] = [[] for _ in self.pairs]
        for position, (pair, *_) in enumerate(self.models()):
            by_pair[pair].append(position)
        return {name: torch.tensor([m for p in mine for m in by_pair[p]]) for name, mine in places(self.pairs).items()}


def estimate(
    request: Request,
    *,
    head: str = "free",
    folds: int = 5,
    rounds: int = 40,
    cap: int = 256,
    repeats: int = 4,
    replicates: int = 100,
    min_samples: int | None = None,
    label_counts: str = "auto",
) -> Estimate:
    """Distances of the request's pairs."""
    number("folds", folds, at_least=2, whole=True)
    number("rounds", rounds, at_least=1, whole=True)
    number("cap", cap, at_least=1, whole=True)
    number("repeats", repeats, at_least=1, whole=True)
    number("replicates", replicates, at_least=0, whole=True)
    least, sampling = request.floor(min_samples), request.sampling(label_counts)
    settings = Settings(find(head).name, folds, rounds, cap, repeats, replicates, least, sampling)
    design = make_design(request, settings)
    cost = None
    if isinstance(request.runtime, Vectorised):
        from fedcollab.distances.methods import stacked

        for name, part in design.parts().items():
            check(part, request.runtime.silos[name])
        replies, cost = stacked.run(design, request.runtime.silos, request.progress), count(design)
    else:
        replies = exchange(design, request)
    return conclude(design, replies, cost)


def make_design(request: Request, settings: Settings) -> Design:
    """Sizes, repeats and scales: each from the two clients of the pair alone."""
    least = settings.min_samples
    norms = dict.fromkeys(request.names, 1.0)  # for those who are lost: their pairs are not used
    replies = request.ask("cross-norm", {name: {"min_samples": least} for name in request.names})
    norms |= {name: float(reply["norm"][0]) for name, reply in replies.items()}
    largest = [
        min(*(folding.largest(request.quantity(name), settings.folds) for name in pair), settings.cap)
        for pair in request.pairs
    ]
    sizes = [max(1, size - size % least) for size in largest]  # two sizes differ by the floor or not at all
    squares = [sum(norms[name] for name in pair) / 2 for pair in request.pairs]
    return Design(
        settings,
        request.classes,
        request.features,
        request.seed,
        request.pairs,
        sizes,
        [min(settings.repeats, -(-256 // size)) for size in sizes],
        [float(np.sqrt(square)) if square > 1e-12 else 1.0 for square in squares],
    )


def exchange(design: Design, request: Request) -> Replies:
    """The server side, message by message."""
    rows = design.rows()
    request.ask("cross-open", {name: part.message() for name, part in design.parts().items()})

    def step(look: Tensor) -> Tensor:
        replies = request.ask("cross-step", {name: {"w": look[mine].numpy()} for name, mine in rows.items()})
        mean = torch.zeros_like(look)
        for name, reply in replies.items():
            mean[rows[name]] += torch.from_numpy(reply["w"]) / 2
        return mean

    start = torch.zeros(len(design.models()), *design.shape)
    rounds = design.settings.rounds
    w = accelerate(step, start, rounds, lambda round_: request.progress(round_, rounds))
    replies = request.ask("cross-validate", {name: {"w": w[mine].numpy()} for name, mine in rows.items()})
    count = design.settings.replicates
    shapes = {name: (len(mine), design.head.directions, count) for name, mine in places(design.pairs).items()}
    return request.expect(replies, "replicates", shapes)


def accelerate(
    step: Callable[[Tensor], Tensor], w: Tensor, rounds: int, report: Callable[[int], None] | None = None
) -> Tensor:
    """Nesterov's method: w' = step(v), v' = w' + t / (t + 3) (w' - w), for `rounds` rounds; returns the last w."""
    look = w
    for t in range(rounds):
        stepped = step(look)
        look = stepped + t / (t + 3) * (stepped - w)
        w = stepped
        if report is not None:
            report(t + 1)
    return w


def conclude(design: Design, replies: Replies, cost: Cost | None) -> Estimate:
    """From both clients' accuracies to the distance, its standard error and its replicates.

    Where a head has two directions, the one that tells the *training* samples apart better is taken: held-out samples
    have no say in it.
    """
    count = len(design.pairs)
    keys = ("accuracy", "variance", "fitted", "replicates")
    total: dict[str, Floats] = {}
    for key in keys:
        shape = next(iter(replies.values()))[key].shape[1:]
        total[key] = np.zeros((count, *shape))
        for name, mine in places(design.pairs).items():
            if name in replies:
                total[key][mine] += replies[name][key]
    best = total["fitted"].argmax(axis=1)
    chosen: dict[str, NDArray[np.float64]] = {key: total[key][np.arange(count), best] for key in keys}
    return Estimate(
        values=chosen["accuracy"] - 1.0,
        stderr=np.sqrt(chosen["variance"]),
        replicates=(chosen["replicates"] - 1.0).T if design.settings.replicates else None,
        settings=asdict(design.settings),
        cost=cost,
    )


def count(design: Design) -> Cost:
    """What `exchange` moves: the weights of all of a client's models both ways each round, then its accuracies."""
    cost = Cost(rounds=design.settings.rounds + 2)
    model = int(np.prod(design.shape)) * 4
    for name, mine in design.rows().items():
        pairs = len(places(design.pairs)[name])
        cost.down[name] = len(mine) * model * (design.settings.rounds + 1)
        cost.up[name] = len(mine) * model * design.settings.rounds
        cost.up[name] += pairs * design.head.directions * (3 + design.settings.replicates) * 8
    return cost
