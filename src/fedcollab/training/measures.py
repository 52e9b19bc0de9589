"""What a silo says about a model on its samples: measures and comparisons, rounded to what the samples can mean.

Without `round_measures` in the silo's limits (in process) nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedcollab import metrics
from fedcollab.silo.rounding import rounded, rounded_shares
from fedcollab.training.outcomes import Outcome
from fedcollab.wire.silo import Silo

Floats = NDArray[np.float64]


def measure(logits: Tensor, labels: Tensor, silo: Silo, kind: str, asked: NDArray[np.float32]) -> Floats:
    """Return what `result.MEASURES` names; no standard error of the loss for fewer test samples than the limit.

    Parameters
    ----------
    logits, labels : Tensor
        A model's scores of the test samples, and their classes.
    silo : Silo
        The silo.
    kind : str
        Which model it is: the one sent, or the silo's own.
    asked : array
        The weights that the server sent.

    Returns
    -------
    array
        Accuracy, loss, balanced accuracy, AUC, standard error of the loss, number of samples.
    """
    truth, predicted = labels.cpu().numpy(), logits.argmax(1).cpu().numpy()
    losses = functional.cross_entropy(logits, labels, reduction="none").double().cpu().numpy()
    count = len(truth)
    known = count >= max(2, silo.limits.min_test)
    stderr = losses.std(ddof=1) / np.sqrt(count) if known else np.nan
    smallest = int(np.unique(truth, return_counts=True)[1].min())
    shares = [
        (predicted == truth).mean(),
        metrics.balanced_accuracy(truth, predicted),
        metrics.auc(truth, torch.softmax(logits, 1).cpu().numpy()),
    ]
    accuracy, balanced, auc = rounded_shares(shares, np.array([count, smallest, smallest]), silo, kind, asked)
    loss = rounded_losses(np.array([float(functional.cross_entropy(logits, labels))]), losses[None], silo, kind, asked)
    stderr = rounded(stderr, stderr / np.sqrt(2 * count), silo, f"{kind} error", asked)
    return np.array([accuracy, float(loss[0]), balanced, auc, stderr, count])


def rounded_losses(means: Floats, losses: Floats, silo: Silo, kind: str, *asked: NDArray[np.float32] | str) -> Floats:
    """Return mean losses rounded to their standard errors, at least 0.

    Parameters
    ----------
    means : array
        The mean losses.
    losses : array
        The losses that each is the mean of, one row for each mean.
    silo, kind, *asked
        As in `silo.rounding.rounded`.

    Returns
    -------
    array
        The rounded means.
    """
    if not silo.limits.round_measures:
        return means
    errors = losses.std(axis=1) / np.sqrt(losses.shape[1])
    found: Floats = np.maximum(rounded(means, errors, silo, f"{kind} loss", *asked), 0.0)
    return found


def rounded_columns(
    columns: Sequence[float], losses: Floats, silo: Silo, kind: str, *asked: NDArray[np.float32] | str
) -> list[float]:
    """Return what `folds.COLUMNS` names, rounded to what the number of samples can mean.

    Parameters
    ----------
    columns : sequence of float
        Mean loss, accuracy, and the standard errors of their differences from training alone.
    losses : array
        The loss of each sample.
    silo, kind, *asked
        As in `silo.rounding.rounded`.

    Returns
    -------
    list of float
        The rounded columns.
    """
    if not silo.limits.round_measures:
        return list(columns)
    loss, accuracy, *errors = columns
    shown = rounded_losses(np.array([loss]), losses[None], silo, kind, *asked)
    share = rounded_shares(accuracy, len(losses), silo, f"{kind} accuracy", *asked)
    spread = rounded(errors, np.array(errors) / np.sqrt(2 * len(losses)), silo, f"{kind} errors", *asked)
    return [float(shown[0]), float(share), *np.maximum(spread, 0.0).tolist()]


def compared(
    found: Sequence[Outcome], silo: Silo, asked: Sequence[NDArray[np.float32] | str]
) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Return how many samples each two models both get right, their mean losses, and the covariances of the losses.

    Rounded, each model has errors of its own, and each two models in how many samples one gets right and the other does
    not. Two models with the same losses are the same: nothing distinguishes them after rounding either.

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
    right, loss, spread : array
        [models, models], [models], [models, models].
    """
    hits = np.stack([outcome.right for outcome in found]).astype(np.int64)
    losses = np.stack([outcome.loss for outcome in found])
    right, loss = hits @ hits.T, losses.mean(axis=1)
    spread: Floats = np.atleast_2d(np.cov(losses))
    if not silo.limits.round_measures:
        return right, loss, spread
    _, chosen, place = np.unique(np.round(losses, 9), axis=0, return_index=True, return_inverse=True)
    place = place.reshape(-1)
    both, means, covariance = _rounded_comparison(
        right[np.ix_(chosen, chosen)], loss[chosen], spread[np.ix_(chosen, chosen)], hits.shape[1], silo,
        [asked[model] for model in chosen],
    )  # fmt: skip
    every = np.ix_(place, place)
    return both[every], means[place], covariance[every]


def _rounded_comparison(
    right: NDArray[np.int64],
    loss: Floats,
    spread: Floats,
    count: int,
    silo: Silo,
    asked: Sequence[NDArray[np.float32] | str],
) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Return counts, mean losses and covariances of models that all differ, rounded; arguments as in `compared`."""
    models = range(len(loss))
    exact, deviation = np.diag(right).astype(np.float64), np.sqrt(np.diag(spread))
    own = np.array([count * float(rounded_shares(exact[k] / count, count, silo, "right", asked[k])) for k in models])
    errors = deviation / np.sqrt(count)
    means = np.array([float(rounded(loss[k], errors[k], silo, "mean loss", asked[k])) for k in models])
    spreads = np.array([float(rounded(deviation[k], errors[k] / np.sqrt(2), silo, "spread", asked[k])) for k in models])
    apart = exact[:, None] - right  # samples that the first gets right and the second does not
    apart = np.maximum(rounded(apart, np.maximum(np.sqrt(apart), 2.0), silo, "apart", *asked), 0)
    shared = own[:, None] - apart
    shared = (shared + shared.T) / 2
    shared = np.clip(shared, np.maximum(0, own[:, None] + own - count), np.minimum.outer(own, own))
    np.fill_diagonal(shared, own)
    scale = np.maximum(np.outer(deviation, deviation), 1e-300)
    unlike = np.triu(np.where(scale > 1e-300, 1 - spread / scale, 1.0), 1)
    unlike = rounded(unlike, unlike / np.sqrt(2 * count), silo, "unlike", *asked)
    covariance = (1 - unlike - unlike.T) * np.outer(spreads, spreads)
    np.fill_diagonal(covariance, spreads**2)
    return np.round(shared).astype(np.int64), means, covariance
