"""What a silo says about several models on the same samples: means, covariances, and how many samples two get right.

Rounded as single measures are (see `measures`); the covariance of two models follows from how far their differences are
spread over the samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.silo.rounding import added_error, rounded, rounded_shares
from fedcollab.training.measures import APART, capped, most_loss, most_unexplained, shown_errors
from fedcollab.training.outcomes import Outcome
from fedcollab.training.scores import SCORES
from fedcollab.wire.silo import Silo

Floats = NDArray[np.float64]


def compared(
    found: Sequence[Outcome], silo: Silo, asked: Sequence[NDArray[np.float32] | str]
) -> dict[str, NDArray[Any]]:
    """Return the mean losses of models and their covariances; how many samples each two both get right, or R2.

    Rounded, each model has errors of its own, and each two models in how many samples one gets right and the other does
    not. The same model asked about twice gets the same answer; whether two models do the same with all samples is not
    told.

    Parameters
    ----------
    found : sequence of Outcome
        What each model does with each test sample.
    silo : Silo
        The silo.
    asked : sequence of array or str
        The weights of each model, or its name if it stayed with the silo.

    Returns
    -------
    dict
        `loss` and `spread`, [models] and [models, models]; of classes `right`, [models, models]; of a numeric target
        `unexplained` and `unexplained_spread`, as `loss` and `spread` are.
    """
    hits = np.stack([outcome.right for outcome in found])
    losses = capped(np.stack([outcome.loss for outcome in found]), silo)
    texts = [part if isinstance(part, str) else np.ascontiguousarray(part).tobytes().hex() for part in asked]
    _, chosen, place = np.unique(texts, return_index=True, return_inverse=True)
    models, place = [asked[model] for model in chosen], place.reshape(-1)
    every = np.ix_(place, place)
    rounds = silo.limits.round_measures

    def means(values: Floats, most: float, *kinds: str) -> tuple[Floats, Floats]:
        if not rounds:
            return values.mean(axis=1), np.atleast_2d(np.cov(values))
        mean, spread = _rounded_means(values[chosen], most, silo, models, kinds)
        return mean[place], spread[every]

    loss, spread = means(losses, most_loss(silo), "mean loss", "spread", "apart")
    if hits.dtype != bool:
        wide = SCORES[silo.schema.task].spread(silo.arrays.y)
        most = most_unexplained(silo, wide) if rounds else np.inf
        missing = np.minimum(np.where(np.isnan(hits), most, 1 - hits), most)
        unexplained = means(missing, most, "unexplained", "unexplained spread", "unexplained apart")
        return {"loss": loss, "spread": spread, "unexplained": unexplained[0], "unexplained_spread": unexplained[1]}
    right = hits.astype(np.int64) @ hits.astype(np.int64).T
    if rounds:
        right = _rounded_counts(right[np.ix_(chosen, chosen)], hits.shape[1], silo, models)[every]
    return {"loss": loss, "spread": spread, "right": right}


def _rounded_counts(
    right: NDArray[np.int64], count: int, silo: Silo, asked: Sequence[NDArray[np.float32] | str]
) -> NDArray[np.int64]:
    """Return how many samples models that all differ both get right, rounded; arguments as in `compared`."""
    exact = np.diag(right).astype(np.float64)
    own = np.array([
        count * float(rounded_shares(right[k, k] / count, count, silo, "right", asked[k])) for k in range(len(right))
    ])  # fmt: skip
    apart = exact[:, None] - right  # samples that the first gets right and the second does not
    apart = np.maximum(rounded(apart, np.maximum(np.sqrt(apart), 2.0), silo, "apart", *asked), 0)
    shared = own[:, None] - apart
    shared = (shared + shared.T) / 2
    shared = np.clip(shared, np.maximum(0, own[:, None] + own - count), np.minimum.outer(own, own))
    np.fill_diagonal(shared, own)
    return np.round(shared).astype(np.int64)


def _rounded_means(
    values: Floats, most: float, silo: Silo, asked: Sequence[NDArray[np.float32] | str], kinds: Sequence[str]
) -> tuple[Floats, Floats]:
    """Return means of models that all differ over samples, and their covariances, rounded.

    What is rounded of two models is how far the samples' differences of the two are spread, from which the covariance
    follows.

    Parameters
    ----------
    values : array
        One row a model.
    most : float
        The largest value of a sample.
    silo, asked
        As in `compared`.
    kinds : sequence of str
        What the means, deviations and differences are, so that each kind has a lot of its own.
    """
    count, (of_mean, of_spread, of_apart) = len(values.T), kinds
    root = np.sqrt(count)
    errors = values.std(axis=1, ddof=1) / root
    means = np.array([
        float(rounded(row.mean(), max(error, most / count), silo, of_mean, model))
        for row, error, model in zip(values, errors, asked, strict=True)
    ])  # fmt: skip
    spreads = np.array([
        root * float(shown_errors(error, most, count, silo, of_spread, model))
        for error, model in zip(errors, asked, strict=True)
    ])  # fmt: skip
    apart = np.zeros((len(values), len(values)))
    for place, row in enumerate(values[:-1]):
        differences = np.clip(values[place + 1 :] - row, -most / APART, most / APART)
        apart[place, place + 1 :] = differences.std(axis=1, ddof=1) / root
    upper = np.triu_indices(len(values), 1)
    apart[upper] = root * shown_errors(apart[upper], most / APART, count, silo, of_apart, *asked)
    squares, widest = spreads**2, np.outer(spreads, spreads)
    covariance = np.clip((squares[:, None] + squares - (apart + apart.T) ** 2) / 2, -widest, widest)
    np.fill_diagonal(covariance, squares * (1 + added_error(silo) ** 2))  # each mean has an error of its own
    return np.maximum(means, 0), covariance
