"""Algorithm 1 of the paper with its published settings: the estimator that its figures were made with.

    w_i, w_j = LocalUpdate(w, D_i^train, 1), LocalUpdate(w, D_j^train, 0);   w = (w_i + w_j) / 2
    D_ij = max over validations of 2 BalAcc(f_w, D_i^valid, D_j^valid) - 1

Half of the smallest client's samples train, at every client (`train`); the rest validates every 10 rounds, and a pair
stops after 10 validations without a better one. The best of many validations on few samples is not an honest estimate:
two clients of 14 samples with the same distribution get .15 to .37. It is here to reproduce; `cross` is the default.

Bao, Wang, Wu, He (ICML 2023), Section 4.1 and Algorithm 1 (line 6 read as client k's data).
"""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import torch
from numpy.typing import NDArray

from fedcollab.distances.methods import span
from fedcollab.distances.methods.discriminator import initial, parameters
from fedcollab.distances.methods.published_client import ClientPlan, check, open_plan, step, validate
from fedcollab.distances.methods.published_loop import Active, PublishedSettings, active_of_clients, inputs, watch
from fedcollab.distances.request import Estimate, Floats, Request, places
from fedcollab.errors import InputError, number
from fedcollab.wire.runtime import Cost
from fedcollab.wire.vectorised import Vectorised


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
    """Estimate the distances of the request's pairs by Algorithm 1.

    Parameters
    ----------
    request : Request
        The pairs.
    labels : bool
        Whether discriminators see the label (C-divergence) or not (H-delta-H divergence).
    train : int, optional
        Training samples of every client; the default is half of the smallest client's.
    lr : float
        The step size.
    batch : int
        Samples of one step.
    local_steps : int
        Steps of each client in a round.
    rounds : int
        Rounds at most.
    every : int
        Rounds between validations.
    patience : int
        Validations without a better one after which a pair stops.
    hidden : int
        Hidden units of a discriminator.
    min_samples : int, optional
        The fewest samples that a client's numbers may be made of; the default is the runtime's.

    Returns
    -------
    Estimate
        Distances, without standard errors.

    Raises
    ------
    InputError
        If a setting is out of range, or a client has fewer samples than `min_samples` demands.
    """
    settings = PublishedSettings(
        train_size(request, train),
        labels,
        number("lr", lr, above=0),
        batch,
        local_steps,
        rounds,
        every,
        patience,
        hidden,
        request.min_samples(min_samples),
    )
    for name in ("batch", "local_steps", "rounds", "every", "patience", "hidden"):
        number(name, getattr(settings, name), at_least=1, whole=True)
    cost = None
    if isinstance(request.runtime, Vectorised):
        assigned = client_plans(request, settings)
        for name, plan in assigned.items():
            check(plan, request.silos[name])
        best, taken = span.run(request, settings, assigned)
        cost = count(request, settings, taken)
    else:
        best, _ = exchange(request, settings)
    return Estimate(best, settings=asdict(settings), cost=cost)


def train_size(request: Request, train: int | None) -> int:
    """Return how many samples every client trains on: as given, or half of the federation's smallest client.

    Parameters
    ----------
    request : Request
        The pairs.
    train : int or None
        What the user gave.

    Raises
    ------
    InputError
        If `train` leaves a client no validation samples.
    """
    names = request.federation.names
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


def client_plans(request: Request, settings: PublishedSettings) -> dict[str, ClientPlan]:
    """Return the plan of each client: the settings, and its side in each of its pairs."""
    return {
        name: ClientPlan(
            seed=request.seed,
            train=settings.train,
            lr=settings.lr,
            batch=settings.batch,
            local_steps=settings.local_steps,
            hidden=settings.hidden,
            classes=request.classes if settings.labels else 0,
            target=request.numeric and settings.labels,
            targets=[int(request.pairs[p][0] == name) for p in mine],
            min_samples=settings.min_samples,
        )
        for name, mine in places(request.pairs).items()
    }


def exchange(request: Request, settings: PublishedSettings) -> tuple[Floats, NDArray[np.int64]]:
    """Run Algorithm 1 by messages: the server side of a real federation.

    Parameters
    ----------
    request : Request
        The pairs.
    settings : PublishedSettings
        The settings of the method.

    Returns
    -------
    best : array
        The best distance of each pair.
    taken : array of int
        The rounds that each pair took.
    """
    mine = places(request.pairs)
    request.ask(open_plan, {name: asdict(plan) for name, plan in client_plans(request, settings).items()})
    start = initial(request.seed, *inputs(request, settings), settings.hidden)
    w = start.repeat(len(request.pairs), 1)

    def parts_of(active: Active) -> dict[str, tuple[list[int], list[int]]]:
        return active_of_clients(mine, active[request.observed()[active]])

    def advance(active: Active, round_: int) -> None:
        parts = parts_of(active)
        replies = request.ask(
            step,
            {name: {"w": w[at].numpy(), "pairs": own, "round": round_} for name, (own, at) in parts.items()},
        )
        w[active] = 0.0
        for name, reply in replies.items():
            w[parts[name][1]] += torch.from_numpy(reply["w"]) / 2

    def balanced(active: Active) -> Floats:
        parts = parts_of(active)
        replies = request.ask(validate, {name: {"w": w[at].numpy(), "pairs": own} for name, (own, at) in parts.items()})
        total: Floats = np.zeros(len(request.pairs))
        for name, reply in replies.items():
            total[parts[name][1]] += reply["accuracy"]
        return total[active] - 1.0

    return watch(advance, balanced, len(request.pairs), settings, request)


def count(request: Request, settings: PublishedSettings, taken: NDArray[np.int64]) -> Cost:
    """Return what `exchange` would move.

    Weights go both ways in each of a pair's rounds; each validation moves weights one way and an accuracy back.

    Parameters
    ----------
    request : Request
        The pairs.
    settings : PublishedSettings
        The settings of the method.
    taken : array of int
        The rounds that each pair took.
    """
    model = parameters(*inputs(request, settings), settings.hidden) * 4
    checks = -(-taken // settings.every)
    cost = Cost(rounds=1 + int(taken.max(initial=0)) + int(checks.max(initial=0)))
    for name, mine in places(request.pairs).items():
        steps, validations = int(taken[mine].sum()), int(checks[mine].sum())
        cost.down[name] = model * (steps + validations)
        cost.up[name] = model * steps + 8 * validations
    return cost
