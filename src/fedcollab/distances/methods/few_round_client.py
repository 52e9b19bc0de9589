"""The client side of `few-round`: second moments of its samples, then held-out accuracies. Two replies in all.

    x~ = (R x, 1)                                   R: `width` random directions, the same at every client
    M_fk = sum over samples s of fold f with label k of x~_s x~_s^T          few-moments
    accuracies of each pair's discriminators, each on the fold that it was not trained on          few-validate

A sample is part of exactly one M_fk, so no difference of two of them isolates it. Labels with fewer samples in a fold
than the limit share their moments: each gets the mean of all of them, times its own count. Test data is never read.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from fedcollab import seeds
from fedcollab.data.rare import rounded_sums
from fedcollab.distances import samples
from fedcollab.distances.methods.cross_client import Classes, Folds, Replicates, Side
from fedcollab.distances.sampling import folds as folding
from fedcollab.distances.sampling.least import fewer_folds, least_samples, require
from fedcollab.distances.sampling.resample import DRAWN
from fedcollab.distances.sampling.uncertainty import WHOLE, summary
from fedcollab.silo import privacy
from fedcollab.silo.rounding import summable_rows
from fedcollab.wire.action import Release, Step, action, require_samples, require_size
from fedcollab.wire.fields import Positive, Sides, Whole
from fedcollab.wire.limits import Limits
from fedcollab.wire.silo import Silo

Floats = NDArray[np.float64]


Above0 = Annotated[float, Meta(gt=0, le=sys.float_info.max)]
Privacy = Annotated[dict[Literal["noise", "epsilon", "delta", "clip"], Above0], Meta(min_length=4)] | None


class MomentsMessage(TypedDict):
    """The message of `few-moments`: the plan of the comparison, which is kept for `few-validate`.

    `target` says that a numeric target is part of each sample.
    """

    seed: Whole
    width: Classes
    folds: Folds
    classes: Classes
    min_samples: Positive
    privacy: NotRequired[Privacy]
    label_counts: str
    target: NotRequired[bool]


class MomentsReply(TypedDict):
    """The reply of `few-moments`: M (folds, labels, triangle), the upper triangle of each matrix, row by row."""

    m: Annotated[NDArray[np.float32], Sides("_", "_", "_")]


class ValidateMessage(TypedDict):
    """The message of `few-validate`: weights (pairs, folds, labels, d + 1), and the client's side in each pair."""

    w: Annotated[NDArray[np.float32], Sides("N", "F", "K", "D")]
    targets: Annotated[list[Side], Sides("N")]
    replicates: Replicates


class ValidateReply(TypedDict):
    """The reply of `few-validate`: accuracy, variance and replicates of each pair; with noise the accuracy alone."""

    found: Annotated[Floats, Sides("N", "_")]


def _limit_moments(message: MomentsMessage, silo: Silo, limits: Limits) -> None:
    side = min(message["width"], samples.width(silo.schema, message.get("target", False))) + 1
    require_size(message["folds"] * message["classes"] * side * (side + 1) // 2, limits)


def _found_columns(message: ValidateMessage, reply: ValidateReply) -> str | None:
    if reply["found"].shape[1] in (1, 2 + message["replicates"]):
        return None
    return f"`found` has shape {reply['found'].shape}; expected {2 + message['replicates']} columns"


@action(
    "few-moments",
    purpose="gave sums over parts of the data: products of two features each, by label",
    release=Release.NOISED,
    step=Step.DISTANCES,
    noise=lambda message, silo: message.get("privacy"),
    limit=_limit_moments,
    cost=lambda message, silo: {"repeats": 1},
)
def moments(message: MomentsMessage, silo: Silo) -> MomentsReply:
    """Return M (folds, labels, triangle), the upper triangle of each matrix row by row."""
    silo.state["few"] = dict(message)
    count = len(silo.arrays.y)
    least, remedy = max(1, count // message["folds"]), fewer_folds(count, least_samples(silo, message))
    if silo.arrays.groups is not None:
        least, remedy = folding.smallest(parts(message, silo)), ""  # how many folds would do depends on the groups
    require(silo, message, least, f"moments of {message['folds']} folds of {count} samples", remedy)
    found = fold_moments(message, silo)
    noise = message.get("privacy")
    if noise:
        # a triangle with its off-diagonal times sqrt(2) is as long as the whole matrix
        weight = np.where(np.equal(*np.triu_indices(triangle_side(found.shape[2]))), 1.0, np.sqrt(0.5))
        found += weight * privacy.noise(noise["noise"] * privacy.SENSITIVITY, found.shape)
    return {"m": found.astype(np.float32)}


@action(
    "few-validate",
    purpose="tested models that tell clients apart: accuracies and their spread",
    release=Release.NOISED,
    step=Step.DISTANCES,
    limit=lambda message, silo, limits: require_samples(len(silo.arrays.y), limits, "an accuracy"),
    cost=lambda message, silo: {"models": len(message["targets"])},
    noise=lambda message, silo: silo.state.get("few", {}).get("privacy"),
    consistent=_found_columns,
)
def validate(message: ValidateMessage, silo: Silo) -> ValidateReply:
    """Return accuracy, variance and replicates of each pair (pairs, 2 + R)."""
    plan = silo.state["few"]
    right = hits(plan, np.asarray(message["w"], dtype=np.float64), message["targets"], silo)
    if plan.get("privacy"):
        accuracy = right.mean(axis=1)
        scale = plan["privacy"]["noise"] * privacy.accuracy_sensitivity(*right.shape)
        return {"found": (accuracy + privacy.noise(scale, accuracy.shape))[:, None]}
    found = summary(right[:, None], np.full(len(right), WHOLE), message["replicates"], plan["seed"], silo, message["w"])
    columns = [found["accuracy"], found["variance"], found["replicates"][:, 0]]
    return {"found": np.concatenate(columns, axis=1)}


def fold_moments(plan: Mapping[str, Any], silo: Silo) -> Floats:
    """Return M (folds, labels, triangle); labels with few samples share their moments.

    Parameters
    ----------
    plan : mapping
        The message of `few-moments`.
    silo : Silo
        The client.

    Returns
    -------
    array
        The upper triangle of each matrix, row by row.
    """
    target = plan.get("target", False)
    x, y = samples.plain(silo, target).astype(np.float64), labels(plan, silo)
    least = 1 if plan.get("privacy") else least_samples(silo, plan)  # with noise: what is pooled would show the data
    summed = []
    for fold, held in enumerate(parts(plan, silo)):
        counts = np.bincount(y[held], minlength=plan["classes"])
        summed += [(fold, group, counts[group], held[np.isin(y[held], group)]) for group in groups(counts, least)]
    for *_, chosen in summed:
        x[chosen] = summable_rows(x, chosen, least, silo)
    z = lifted(plan, samples.lift(x) if target else x)
    upper = np.triu_indices(z.shape[1])
    found: Floats = np.zeros((plan["folds"], plan["classes"], len(upper[0])))
    for fold, group, counted, chosen in summed:
        found[fold, group] = (counted / len(chosen))[:, None] * rounded_sums(z[chosen].T @ z[chosen], least)[upper]
    return found


def hits(plan: Mapping[str, Any], w: Floats, targets: list[int], silo: Silo) -> Floats:
    """Return for each pair and sample whether a discriminator that did not see the sample attributes it to this client.

    Parameters
    ----------
    plan : mapping
        The message of `few-moments`.
    w : array
        Weights (pairs, folds, labels, d + 1).
    targets : list of int
        1 where this client is the first of the pair, 0 where it is the second.
    silo : Silo
        The client.

    Returns
    -------
    array
        (pairs, samples), 1 or 0.
    """
    x, y = samples.rows(silo, plan.get("target", False)), labels(plan, silo)
    z, first = lifted(plan, x.astype(np.float64)), np.array(targets) == 1
    right: Floats = np.empty((len(w), len(y)))
    for fold, held in enumerate(parts(plan, silo)):
        for label in np.unique(y[held]):
            chosen = held[y[held] == label]
            right[:, chosen] = (w[:, fold, label] @ z[chosen].T > 0) == first[:, None]
    return right


def groups(counts: NDArray[np.int64], at_least: int) -> list[list[int]]:
    """Return which labels are summed together: a label with enough samples alone, all others in one group.

    If the others have too few samples even together, labels with enough join them, those with the fewest first.

    Parameters
    ----------
    counts : array of int
        Samples of each label.
    at_least : int
        Samples that a group needs.

    Returns
    -------
    list of list of int
        The labels of each group; labels without samples are left out.

    Examples
    --------
    >>> groups(np.array([12, 3, 0, 4, 30]), 10)
    [[4], [1, 3, 0]]
    """
    order = [int(label) for label in np.argsort(counts, kind="stable") if counts[label] > 0]
    pooled = [label for label in order if counts[label] < at_least]
    alone = order[len(pooled) :]
    while pooled and alone and counts[pooled].sum() < at_least:
        pooled.append(alone.pop(0))
    return [[label] for label in alone] + ([pooled] if pooled else [])


def lifted(plan: Mapping[str, Any], x: Floats) -> Floats:
    """Return x~ = (R x, 1) of samples; with privacy, R x / clip, no longer than 1."""
    x = project(x, plan["width"], plan["seed"])
    if plan.get("privacy"):
        x = privacy.clipped(x, plan["privacy"]["clip"])
    return np.concatenate([x, np.ones((len(x), 1))], axis=1)


def project(x: Floats, width: int, seed: int) -> Floats:
    """Return R x with R Gaussian, lengths kept on average; x itself if it has no more than `width` features.

    Parameters
    ----------
    x : array
        One row a sample.
    width : int
        Features after projection.
    seed : int
        R is drawn from it, the same at every client.
    """
    features = x.shape[1]
    if features <= width:
        return x
    directions = seeds.generator(seed, "few-round-projection", features).normal(size=(width, features))
    projected: Floats = x @ (directions.T / np.sqrt(width))
    return projected


def triangle_side(length: int) -> int:
    """Return the number of rows of a matrix whose upper triangle has this many entries.

    Examples
    --------
    >>> triangle_side(6)
    3
    """
    return int((np.sqrt(8 * length + 1) - 1) / 2)


def unfolded(triangles: NDArray[Any]) -> Floats:
    """Return symmetric matrices from their upper triangles, which are the last axis.

    Examples
    --------
    >>> unfolded(np.array([1, 2, 3])).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    side = triangle_side(triangles.shape[-1])
    first, second = np.triu_indices(side)
    matrices: Floats = np.zeros((*triangles.shape[:-1], side, side))
    matrices[..., first, second] = matrices[..., second, first] = triangles
    return matrices


def labels(plan: Mapping[str, Any], silo: Silo) -> NDArray[np.int64]:
    """Return the client's class indices; all 0 if labels do not count."""
    y = samples.labels(silo)
    return y if plan["classes"] > 1 else np.zeros_like(y)


def parts(plan: Mapping[str, Any], silo: Silo) -> list[folding.Ints]:
    """Return the client's samples, fold by fold.

    With privacy no sample's label may decide about the fold of another, so folds are random.
    """
    label_counts = DRAWN if plan.get("privacy") else plan["label_counts"]
    groups = silo.arrays.groups
    return folding.cut(plan["seed"], silo.lot, 0, samples.labels(silo), plan["folds"], label_counts, groups)
