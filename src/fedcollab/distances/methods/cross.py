"""The default estimator: cross-fitted discriminators, every sample validates, nothing is picked.

    D_ij = mean over i of [f = i] + mean over j of [f = j] - 1  =  2 BalAcc(f) - 1

with f trained on other samples than it is judged on. For every pair the clients' samples are cut into folds
(`sampling/folds.py`), several times over; for each fold one linear discriminator per label (`heads.Free`) is trained
federatedly for a fixed number of rounds on min(samples of the smaller client that a fold leaves, `cap`) samples a side,
and judged on the fold. One round is one full-batch step at each client and plain averaging (Algorithm 1 of the paper);
the server adds Nesterov's extrapolation, which a client cannot see. All models of all pairs travel in the same
messages.

A signed value, so that the estimate of a true 0 is 0 on average. Reference: Bao, Wang, Wu, He (ICML 2023), Section 4.1;
Chernozhukov et al., "Double/debiased machine learning" (2018), for cross-fitting.
"""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcollab.distances.methods import stacked
from fedcollab.distances.methods.cross_client import check, norm, open_plan, step, validate
from fedcollab.distances.methods.cross_design import CrossSettings, Design, accelerate
from fedcollab.distances.methods.heads import find
from fedcollab.distances.request import Estimate, Floats, Request, places
from fedcollab.distances.sampling import folds as folding
from fedcollab.errors import number
from fedcollab.wire.message import Message
from fedcollab.wire.runtime import Cost
from fedcollab.wire.vectorised import Vectorised

Replies = dict[str, Message]


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
    """Estimate the distances of the request's pairs.

    Parameters
    ----------
    request : Request
        The pairs.
    head : str
        The family of discriminators: a name in `heads.HEADS`.
    folds : int
        Folds that each client's samples are cut into.
    rounds : int
        Rounds of training.
    cap : int
        Training samples a side at most.
    repeats : int
        Random divisions of a pair's samples into folds, at most; large pairs take fewer.
    replicates : int
        Joint replicates of the matrix; 0: none.
    min_samples : int, optional
        The fewest samples that a client's numbers may be made of; the default is the runtime's.
    label_counts : str
        Whether label counts were "drawn" or "set"; "auto" finds out (see `sampling.resample`).

    Raises
    ------
    InputError
        If a setting is out of range, or a client has fewer samples than `min_samples` demands.
    """
    limits = {"folds": (folds, 2), "rounds": (rounds, 1), "cap": (cap, 1), "repeats": (repeats, 1)}
    for name, (value, at_least) in {**limits, "replicates": (replicates, 0)}.items():
        number(name, value, at_least=at_least, whole=True)
    least, sampling = request.min_samples(min_samples), request.sampling(label_counts)
    settings = CrossSettings(find(head).name, folds, rounds, cap, repeats, replicates, least, sampling)
    design = make_design(request, settings)
    cost = None
    if isinstance(request.runtime, Vectorised):
        for name, part in design.client_plans().items():
            check(part, request.silos[name])
        replies, cost = stacked.run(design, request.silos, request.progress), count(design)
    else:
        replies = exchange(design, request)
    return conclude(design, replies, cost)


def make_design(request: Request, settings: CrossSettings) -> Design:
    """Choose training sizes, repeats and scales, for each pair from its two clients alone.

    Parameters
    ----------
    request : Request
        The pairs; the clients are asked for the mean squared length of their samples.
    settings : CrossSettings
        The settings of the method.
    """
    least = settings.min_samples
    norms = dict.fromkeys(request.names, 1.0)  # for those who are lost: their pairs are not used
    replies = request.ask(norm, {name: {"head": settings.head, "min_samples": least} for name in request.names})
    norms |= {name: float(reply["norm"][0]) for name, reply in replies.items()}
    largest = [
        min(*(folding.largest(request.quantity(name), settings.folds) for name in pair), settings.cap)
        for pair in request.pairs
    ]
    sizes = [max(1, size - size % least) for size in largest]  # two sizes differ by the limit or not at all
    squares = [sum(norms[name] for name in pair) / 2 for pair in request.pairs]
    return Design(
        settings,
        max(1, request.classes),
        request.features(target=find(settings.head).target == "part"),
        request.seed,
        request.pairs,
        sizes,
        [min(settings.repeats, -(-256 // size)) for size in sizes],
        [float(np.sqrt(square)) if square > 1e-12 else 1.0 for square in squares],
    )


def exchange(design: Design, request: Request) -> Replies:
    """Train and validate all models by messages: the server side of a real federation.

    Parameters
    ----------
    design : Design
        What is trained for each pair.
    request : Request
        Carries the messages.

    Returns
    -------
    dict
        The reply of each client to `cross-validate`.
    """
    rows = design.rows()
    request.ask(open_plan, {name: asdict(part) for name, part in design.client_plans().items()})

    def average_step(look: Tensor) -> Tensor:
        replies = request.ask(step, {name: {"w": look[mine].numpy()} for name, mine in rows.items()})
        mean = torch.zeros_like(look)
        for name, reply in replies.items():
            mean[rows[name]] += torch.from_numpy(reply["w"]) / 2
        return mean

    start = torch.zeros(len(design.models()), *design.shape)
    rounds = design.settings.rounds
    w = accelerate(average_step, start, rounds, lambda round_: request.progress(round_, rounds))
    replies = request.ask(validate, {name: {"w": w[mine].numpy()} for name, mine in rows.items()})
    count = design.settings.replicates
    shapes = {name: (len(mine), design.head.directions, count) for name, mine in places(design.pairs).items()}
    return request.expect(replies, "replicates", shapes)


def conclude(design: Design, replies: Replies, cost: Cost | None) -> Estimate:
    """Compute distances, standard errors and replicates from both clients' accuracies.

    If a head has two directions, the one that distinguishes the *training* samples better is taken: held-out samples do
    not influence that choice.

    Parameters
    ----------
    design : Design
        What was trained for each pair.
    replies : dict
        The reply of each client to `cross-validate`.
    cost : Cost or None
        The cost to report, if no messages were sent.
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
    """Return what `exchange` would move: the weights of a client's models both ways each round, then its accuracies."""
    cost = Cost(rounds=design.settings.rounds + 2)
    model = int(np.prod(design.shape)) * 4
    for name, mine in design.rows().items():
        pairs = len(places(design.pairs)[name])
        cost.down[name] = len(mine) * model * (design.settings.rounds + 1)
        cost.up[name] = len(mine) * model * design.settings.rounds
        cost.up[name] += pairs * design.head.directions * (3 + design.settings.replicates) * 8
    return cost
