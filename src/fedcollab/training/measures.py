"""What a silo says about a model on its samples: measures and comparisons, rounded to what the samples can mean.

    L = 2 (1 + ln classes)          a sample's loss counts up to L
    a mean of n losses is rounded to max(its standard error, L / n); a standard error is shown from L / n on

So one sample moves a mean by no more than its rounding, whatever the model: a server that crafts a model which fails on
single samples alone would otherwise see whether there are any. A standard error includes that of the rounding.

Without `round_measures` in the silo's limits (in process) nothing is rounded or capped.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedcollab import metrics
from fedcollab.silo.rounding import added_error, moved_for_decision, rounded, rounded_shares
from fedcollab.training.outcomes import Outcome
from fedcollab.wire.silo import Silo

Floats = NDArray[np.float64]

#: how much coarser than a measure the loss of a round is, and how many samples a measure of a round does not tell apart
COARSE = 4


def measure(logits: Tensor, labels: Tensor, silo: Silo, kind: str, *asked: NDArray[np.float32] | str) -> Floats:
    """Return what `result.MEASURES` names; no standard error of the loss for fewer test samples than the limit.

    Parameters
    ----------
    logits, labels : Tensor
        A model's scores of the test samples, and their classes.
    silo : Silo
        The silo.
    kind : str
        Which model it is: the one sent, or the silo's own.
    *asked : array or str
        The setting and the weights that the server sent, and those of the model that is measured.

    Returns
    -------
    array
        Accuracy, loss, balanced accuracy, AUC, standard error of the loss, number of samples.
    """
    if silo.limits.round_measures:
        logits = torch.nan_to_num(logits)
    truth, predicted = labels.cpu().numpy(), logits.argmax(1).cpu().numpy()
    losses = capped(functional.cross_entropy(logits, labels, reduction="none").double().cpu().numpy(), silo)
    count = len(truth)
    known = count >= max(2, silo.limits.min_test)
    stderr = losses.std(ddof=1) / np.sqrt(count) if known else np.nan
    smallest = int(np.unique(truth, return_counts=True)[1].min())
    shares = [
        (predicted == truth).mean(),
        metrics.balanced_accuracy(truth, predicted),
        metrics.auc(truth, torch.softmax(logits, 1).cpu().numpy()),
    ]
    accuracy, balanced, auc = rounded_shares(shares, np.array([count, smallest, smallest]), silo, kind, *asked)
    mean = np.array([float(functional.cross_entropy(logits, labels))])
    loss = rounded_losses(mean, losses[None], silo, kind, *asked)
    error = rounded_errors(np.array([stderr]), count, silo, f"{kind} error", *asked)
    return np.array([accuracy, float(loss[0]), balanced, auc, float(error[0]), count])


def most_loss(silo: Silo) -> float:
    """Return L, up to which a sample's loss counts where measures are rounded."""
    return 2.0 * (1.0 + float(np.log(max(2, len(silo.schema.classes)))))


def capped(losses: Floats, silo: Silo) -> Floats:
    """Return losses of samples, at most L each where the silo rounds its measures; L where a loss is not finite.

    A model of huge weights overflows at the samples with the largest values: were the mean not finite, it would tell
    exactly whether there is one.
    """
    if not silo.limits.round_measures:
        return losses
    found: Floats = np.where(np.isfinite(losses), np.minimum(losses, most_loss(silo)), most_loss(silo))
    return found


def rounded_errors(errors: Floats, count: int, silo: Silo, kind: str, *asked: NDArray[np.float32] | str) -> Floats:
    """Return standard errors of mean losses as they are shown: at least L / n, and with the error of rounding.

    Parameters
    ----------
    errors : array
        Standard errors of means.
    count : int
        n, the number of samples.
    silo, kind, *asked
        As in `silo.rounding.rounded`.

    Returns
    -------
    array
        The standard errors; NaN stays.
    """
    if not silo.limits.round_measures:
        return errors
    least = np.maximum(errors, most_loss(silo) / count)
    found: Floats = np.maximum(rounded(least, least / np.sqrt(2 * count), silo, kind, *asked), 0.0)
    with_rounding: Floats = found * np.sqrt(1 + added_error(silo) ** 2)
    return with_rounding


def rounded_losses(
    means: Floats, losses: Floats, silo: Silo, kind: str, *asked: NDArray[np.float32] | str, least: int = 1
) -> Floats:
    """Return mean losses rounded to their standard errors, or to `least` L / n where that is more; at least 0.

    Parameters
    ----------
    means : array
        The mean losses, which are returned where the silo does not round.
    losses : array
        The losses that each is the mean of, one row for each mean.
    silo, kind, *asked
        As in `silo.rounding.rounded`.
    least : int
        How many samples a mean must not tell apart.

    Returns
    -------
    array
        The rounded means.
    """
    if not silo.limits.round_measures:
        return means
    losses = capped(losses, silo)
    errors = [_loss_error(each, silo, least) for each in losses]
    found: Floats = np.maximum(rounded(losses.mean(axis=1), errors, silo, f"{kind} loss", *asked), 0.0)
    return found


def shown_loss(losses: Floats, silo: Silo, asked: NDArray[np.float32]) -> Floats:
    """Return the training loss of the weights that were sent, coarsely: four times as much as a measure is rounded.

    Nothing is decided by it, and a plan has many rounds whose weights the server chooses.

    Parameters
    ----------
    losses : array
        The loss of each sample.
    silo : Silo
        The silo.
    asked : array
        The weights that were sent.

    Returns
    -------
    array
        The loss, as one value.
    """
    each = capped(losses, silo)
    found: Floats = np.maximum(
        rounded([each.mean()], COARSE * _loss_error(each, silo), silo, "training loss", asked), 0
    )
    return found


def judged_loss(losses: Floats, silo: Silo, *asked: NDArray[np.float32]) -> float:
    """Return the mean loss by which a silo decides whether weights are of any use, as coarse as `shown_loss`.

    Parameters
    ----------
    losses, silo, *asked
        As in `shown_loss`.
    """
    each = capped(losses, silo)
    return moved_for_decision(float(each.mean()), COARSE * _loss_error(each, silo), silo, "judged loss", *asked)


def _loss_error(losses: Floats, silo: Silo, least: int = 1) -> float:
    """Return the standard error of a mean loss, or `least` L / n where that is more."""
    return max(float(losses.std() / np.sqrt(len(losses))), least * most_loss(silo) / len(losses))


def what_diverged(loss: float) -> str:
    """Return the words for a round whose loss or weights are not finite; a finite loss is not told."""
    return "weights" if np.isfinite(loss) else f"loss {loss:g}"


def rounded_columns(
    columns: Sequence[float],
    losses: Floats,
    silo: Silo,
    kind: str,
    *asked: NDArray[np.float32] | str,
    least: int = COARSE,
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
    least : int
        How many samples a measure must not tell apart: more than elsewhere, since a plan has many rounds.

    Returns
    -------
    list of float
        The rounded columns.
    """
    if not silo.limits.round_measures:
        return list(columns)
    loss, accuracy, *errors = columns
    shown = rounded_losses(np.array([loss]), losses[None], silo, kind, *asked, least=least)
    share = rounded_shares(accuracy, len(losses), silo, f"{kind} accuracy", *asked, least=least)
    spread = rounded_errors(np.array(errors), len(losses), silo, f"{kind} errors", *asked)
    return [float(shown[0]), float(share), *spread.tolist()]


def compared(
    found: Sequence[Outcome], silo: Silo, asked: Sequence[NDArray[np.float32] | str]
) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Return how many samples each two models both get right, their mean losses, and the covariances of the losses.

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
    right, loss, spread : array
        [models, models], [models], [models, models].
    """
    hits = np.stack([outcome.right for outcome in found]).astype(np.int64)
    losses = capped(np.stack([outcome.loss for outcome in found]), silo)
    right, loss = hits @ hits.T, losses.mean(axis=1)
    spread: Floats = np.atleast_2d(np.cov(losses))
    if not silo.limits.round_measures:
        return right, loss, spread
    texts = [part if isinstance(part, str) else np.ascontiguousarray(part).tobytes().hex() for part in asked]
    _, chosen, place = np.unique(texts, return_index=True, return_inverse=True)
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
    exact = np.diag(right).astype(np.float64)
    least = most_loss(silo) / np.sqrt(count)
    deviation = np.maximum(np.sqrt(np.diag(spread)), least)
    own = np.array([count * float(rounded_shares(exact[k] / count, count, silo, "right", asked[k])) for k in models])
    errors = deviation / np.sqrt(count)
    means = np.array([float(rounded(loss[k], errors[k], silo, "mean loss", asked[k])) for k in models])
    spreads = np.array([float(rounded(deviation[k], errors[k] / np.sqrt(2), silo, "spread", asked[k])) for k in models])
    means, spreads = np.maximum(means, 0), np.maximum(spreads, least / 2)
    apart = exact[:, None] - right  # samples that the first gets right and the second does not
    apart = np.maximum(rounded(apart, np.maximum(np.sqrt(apart), 2.0), silo, "apart", *asked), 0)
    shared = own[:, None] - apart
    shared = (shared + shared.T) / 2
    shared = np.clip(shared, np.maximum(0, own[:, None] + own - count), np.minimum.outer(own, own))
    np.fill_diagonal(shared, own)
    true = np.maximum(np.sqrt(np.diag(spread)), 1e-150)
    scale = np.outer(true, true)
    unlike = np.triu(np.maximum(np.where(scale > 1e-290, 1 - spread / scale, 1.0), 2.0 / count), 1)
    unlike = np.clip(rounded(unlike, unlike / np.sqrt(2 * count), silo, "unlike", *asked), 0, 2)
    covariance = (1 - unlike - unlike.T) * np.outer(spreads, spreads)
    np.fill_diagonal(covariance, spreads**2 * (1 + added_error(silo) ** 2))  # each mean has an error of its own
    return np.round(shared).astype(np.int64), means, covariance
