"""For comparison: optimal transport between the clients' class prototypes.

    D_ij = min over couplings pi of p_i and p_j of  sum_ab pi_ab c(a, b),
    c(a, b) = 1 - [a = b] exp(-|mu_ia - mu_jb|^2 / (2 s_ij^2))

p_i are label shares, mu_ia the mean of client i's samples of class a, s_ij^2 the two clients' mean squared distance of
a sample to its own prototype. Moving mass to another class costs 1; within a class, what its means have moved. After
the label-aware transport of Alvarez-Melis and Fusi ("Geometric dataset distances via optimal transport", 2020).

A class's mean leaves a client only from `least` samples on: the mean of one sample is that sample. A class without a
mean at either client is compared by its label alone. One message; a value in [0, 1], without standard errors.
"""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from fedcollab.distances.methods.cross_client import Classes
from fedcollab.distances.methods.label import label_counts, require_classes
from fedcollab.distances.request import Estimate, Floats, Request
from fedcollab.distances.sampling.least import least_samples
from fedcollab.errors import number
from fedcollab.silo.rounding import summable_rows
from fedcollab.wire.action import Release, Step, action, require_size
from fedcollab.wire.fields import Positive, Sides
from fedcollab.wire.message import Message
from fedcollab.wire.silo import Silo


class MeansMessage(TypedDict):
    """The message of `prototype-means`: how many classes there are, and how many samples a class must have."""

    classes: Classes
    least: Annotated[int, Meta(ge=2)]
    min_samples: NotRequired[Positive]


class MeansReply(TypedDict):
    """The reply of `prototype-means`: the mean sample of each class that has enough samples.

    `known` says which classes these are, `spread` how far samples are from their class's mean.
    """

    means: Annotated[NDArray[np.float32], Sides("K", "_")]
    known: Annotated[NDArray[np.bool_], Sides("K")]
    spread: Annotated[Floats, Sides(1, low=0)]


@action(
    "prototype-means",
    purpose="gave the average sample of each class",
    release=Release.EXACT,
    step=Step.DISTANCES,
    cost=lambda message, silo: {"repeats": 1},
    limit=lambda message, silo, limits: require_size(message["classes"] * silo.arrays.x[0].size, limits),
)
def means(message: MeansMessage, silo: Silo) -> MeansReply:
    """Return means of the classes with `least` samples or more (and the client's own limit), and their spread."""
    x, y = silo.features.astype(np.float64), silo.arrays.y
    found = np.zeros((message["classes"], x.shape[1]))
    least = least_samples(silo, message)
    known = np.bincount(y, minlength=message["classes"]) >= max(message["least"], least)
    for label in np.flatnonzero(known):
        rows = np.flatnonzero(y == label)
        x[rows] = summable_rows(x, rows, least, silo)
        found[label] = x[rows].mean(axis=0)
    inside = known[y]
    spread = np.sum((x[inside] - found[y[inside]]) ** 2) / max(int(inside.sum()), 1)
    return {"means": found.astype(np.float32), "known": known, "spread": np.array([spread])}


def estimate(request: Request, *, least: int = 3, min_samples: int | None = None) -> Estimate:
    """Estimate the distances of the request's pairs.

    Parameters
    ----------
    request : Request
        The pairs.
    least : int
        The fewest samples of a class whose mean leaves a client.
    min_samples : int, optional
        The same for any number that leaves a client; the larger of the two counts. The default is the runtime's.

    Returns
    -------
    Estimate
        Distances in [0, 1], without standard errors.
    """
    number("least", least, at_least=2, whole=True)
    require_classes(request, "prototype")
    min_samples = request.min_samples(min_samples)
    message: Message = {"classes": request.classes, "least": least, "min_samples": min_samples}
    replies = request.ask(means, dict.fromkeys(request.names, message))
    replies = request.expect(
        replies, "means", dict.fromkeys(replies, (request.classes, request.features(target=False)))
    )
    values = []
    for position, (a, b) in enumerate(request.pairs):
        if a not in replies or b not in replies:
            values.append(np.nan)
            continue
        cost = class_costs(replies[a], replies[b])
        p, q = (label_counts(request, name) / request.quantity(name) for name in (a, b))
        values.append(transport(p, q, cost))
        request.progress(position + 1, len(request.pairs))
    return Estimate(np.array(values, dtype=np.float64), settings={"least": least, "min_samples": min_samples})


def class_costs(first: Message, second: Message) -> Floats:
    """Return the matrix of c(a, b) from two clients' replies."""
    scale = max(float(first["spread"][0] + second["spread"][0]), 1e-12)  # 2 s^2, s^2 the mean of the two
    moved = np.sum((first["means"].astype(np.float64) - second["means"]) ** 2, axis=1)
    cost: Floats = np.ones((len(moved), len(moved)))
    both = first["known"].astype(bool) & second["known"].astype(bool)
    np.fill_diagonal(cost, np.where(both, 1.0 - np.exp(-moved / scale), 0.0))
    return cost


def transport(p: Floats, q: Floats, cost: Floats) -> float:
    """Return the least cost of moving the shares p to the shares q.

    Parameters
    ----------
    p, q : array
        Label shares of two clients.
    cost : array
        The cost of moving from each label to each other.

    Returns
    -------
    float
        The cost, in [0, 1].

    Examples
    --------
    >>> round(transport(np.array([0.5, 0.5]), np.array([0.25, 0.75]), 1 - np.eye(2)), 6)
    0.25
    """
    from scipy.optimize import linprog  # type: ignore[import-untyped]

    count = len(p)
    margins = np.concatenate([np.kron(np.eye(count), np.ones(count)), np.kron(np.ones(count), np.eye(count))])
    solved = linprog(cost.ravel(), A_eq=margins[:-1], b_eq=np.concatenate([p, q])[:-1], method="highs")
    return float(np.clip(solved.fun, 0.0, 1.0))
