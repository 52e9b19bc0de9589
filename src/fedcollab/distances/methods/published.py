"""Algorithm 1 of the paper with its published settings: the estimator that its figures were made with.

    w_i, w_j = LocalUpdate(w, D_i^train, 1), LocalUpdate(w, D_j^train, 0);   w = (w_i + w_j) / 2
    D_ij = max over validations of 2 BalAcc(f_w, D_i^valid, D_j^valid) - 1

Half of the smallest client's samples train, at every client (`train`); the rest validates every 10 rounds, and a pair
stops after 10 validations without a better one. The best of many validations on few samples is not an honest estimate:
two clients of 14 samples with the same distribution get .15 to .37. It is here to reproduce; `cross` is the default.

Bao, Wang, Wu, He (ICML 2023), Section 4.1 and Algorithm 1 (line 6 read as client k's data).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcollab.distances.methods.discriminator import initial, parameters
from fedcollab.distances.methods.pairs import Estimate, Floats, Request, places
from fedcollab.distances.methods.published_client import Task, check
from fedcollab.errors import InputError, number
from fedcollab.wire.runtime import Cost
from fedcollab.wire.vectorised import Vectorised

Active = NDArray[np.int64]


@dataclass(frozen=True)
class Settings:
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


def estimate(
    request: Request,
    *,
    labels: bool = True,
    train: int | None = None,
    lr: float = 0.01,
    batch: int = 32,
    local_steps: int = 1,
    rounds: int = 2000,
    every: int = 10,
    patience: int = 10,
    hidden: int = 200,
    min_samples: int | None = None,
) -> Estimate:
    """Distances of the request's pairs: C-divergence, or without `labels` the H-delta-H divergence."""
    settings = Settings(
        train_size(request, train),
        labels,
        number("lr", lr, above=0),
        batch,
        local_steps,
        rounds,
        every,
        patience,
        hidden,
        request.floor(min_samples),
    )
    for name in ("batch", "local_steps", "rounds", "every", "patience", "hidden"):
        number(name, getattr(settings, name), at_least=1, whole=True)
    cost = None
    if isinstance(request.runtime, Vectorised):
        from fedcollab.distances.methods import span

        told = tasks(request, settings)
        for name, task in told.items():
            check(task, request.runtime.silos[name])
        best, taken = span.run(request, settings, told)
        cost = count(request, settings, taken)
    else:
        best, _ = exchange(request, settings)
    return Estimate(best, settings=asdict(settings), cost=cost)


def train_size(request: Request, train: int | None) -> int:
    """Training samples of every client: as given, or half of the federation's smallest client."""
    names = request.runtime.names
    smallest = min(names, key=request.quantity)
    if train is None:
        return max(1, request.quantity(smallest) // 2)
    number("train", train, at_least=1, whole=True)
    if train >= request.quantity(smallest):
        raise InputError(
            f"`train` (={train}) must leave validation samples at every client; "
            f"client `{smallest}` has {request.quantity(smallest)}"
        )
    return train


def tasks(request: Request, settings: Settings) -> dict[str, Task]:
    """What each client is told."""
    return {
        name: Task(
            seed=request.seed,
            train=settings.train,
            lr=settings.lr,
            batch=settings.batch,
            local_steps=settings.local_steps,
            hidden=settings.hidden,
            classes=request.classes if settings.labels else 0,
            targets=[int(request.pairs[p][0] == name) for p in mine],
            min_samples=settings.min_samples,
        )
        for name, mine in places(request.pairs).items()
    }


def exchange(request: Request, settings: Settings) -> tuple[Floats, NDArray[np.int64]]:
    """The server side, message by message: best distance and rounds of each pair."""
    mine = places(request.pairs)
    request.ask("published-open", {name: task.message() for name, task in tasks(request, settings).items()})
    start = initial(request.seed, request.features, request.classes if settings.labels else 0, settings.hidden)
    w = start.repeat(len(request.pairs), 1)

    def messages(active: Active) -> dict[str, tuple[list[int], Tensor]]:
        """For each client its active pairs: their positions in its own list, and in the list of all."""
        chosen = set(active.tolist())
        chosen -= set(np.flatnonzero(~request.observed()).tolist())
        listed = {name: [k for k, p in enumerate(pairs) if p in chosen] for name, pairs in mine.items()}
        return {name: (own, torch.tensor(mine[name])[own]) for name, own in listed.items() if own}

    def advance(active: Active, round_: int) -> None:
        parts = messages(active)
        replies = request.ask(
            "published-step",
            {name: {"w": w[at].numpy(), "pairs": own, "round": round_} for name, (own, at) in parts.items()},
        )
        w[active] = 0.0
        for name, reply in replies.items():
            w[parts[name][1]] += torch.from_numpy(reply["w"]) / 2

    def balanced(active: Active) -> Floats:
        parts = messages(active)
        replies = request.ask(
            "published-validate", {name: {"w": w[at].numpy(), "pairs": own} for name, (own, at) in parts.items()}
        )
        total: Floats = np.zeros(len(request.pairs))
        for name, reply in replies.items():
            total[parts[name][1].numpy()] += reply["accuracy"]
        return total[active] - 1.0

    return watch(advance, balanced, len(request.pairs), settings, request)


def watch(
    advance: Callable[[Active, int], None],
    balanced: Callable[[Active], Floats],
    pairs: int,
    settings: Settings,
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


def count(request: Request, settings: Settings, taken: NDArray[np.int64]) -> Cost:
    """What `exchange` moves: weights both ways in each of a pair's rounds, weights and an accuracy per validation."""
    model = parameters(request.features, request.classes if settings.labels else 0, settings.hidden) * 4
    checks = -(-taken // settings.every)
    cost = Cost(rounds=1 + int(taken.max(initial=0)) + int(checks.max(initial=0)))
    for name, mine in places(request.pairs).items():
        steps, validations = int(taken[mine].sum()), int(checks[mine].sum())
        cost.down[name] = model * (steps + validations)
        cost.up[name] = model * steps + 8 * validations
    return cost
