"""What a silo says about a model on its samples: measures, rounded to what the samples can mean.

    L = 2 (1 + ln classes), or 2    a sample's loss counts up to L; 2 for a numeric target (`Scores.most_loss`)
    a mean of n losses is rounded to max(its standard error, L / n)
    D = L / 4                       a difference of two models' losses counts up to D
    a standard error s of what counts up to M is shown from M / n on, and rounded to max(s / sqrt(2 n), what one sample
    more may add to it, sqrt(s^2 + (M / n)^2) - s)

So one sample moves a mean, or a standard error, by no more than its rounding, whatever the model: a server that crafts
a model which fails on single samples alone would otherwise see whether there are any. A standard error that is sent
includes that of the rounding. Where several numbers are sent of one model, each has an error of its own.

Without `round_measures` in the silo's limits (in process) nothing is rounded or capped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcollab import metrics
from fedcollab.silo.rounding import added_error, moved_for_decision, rounded, rounded_shares
from fedcollab.training.losses import ABSOLUTE, LOSSES, SQUARED, Loss
from fedcollab.training.outcomes import Outcome
from fedcollab.training.scores import SCORES
from fedcollab.wire.silo import Silo

Floats = NDArray[np.float64]

#: how much coarser than a measure the loss of a round is, and how many samples a measure of a round does not tell apart
COARSE = 4
#: how many times less than the loss of a sample the difference of two models' losses counts at most
APART = 4


def measure(loss: Loss, outputs: Tensor, y: Tensor, silo: Silo, kind: str, *asked: NDArray[np.float32] | str) -> Floats:
    """Return what `Scores.measures` names; no standard error of the loss for fewer test samples than the limit.

    Parameters
    ----------
    loss : Loss
        The loss that the model was trained with.
    outputs, y : Tensor
        What the model gives for the test samples, and their classes or targets.
    silo : Silo
        The silo.
    kind : str
        Which model it is: the one sent, or the silo's own.
    *asked : array or str
        The setting and the weights that the server sent, and those of the model that is measured.

    Returns
    -------
    array
        One value for each of `Scores.measures`.
    """
    if silo.limits.round_measures:
        outputs = torch.nan_to_num(outputs)
    losses = capped(loss.each(outputs, y).double().cpu().numpy(), silo)
    count = len(losses)
    known = count >= max(2, silo.limits.min_test)
    stderr = losses.std(ddof=1) / np.sqrt(count) if known else np.nan
    mean = rounded_losses(np.array([float(loss.mean(outputs, y))]), losses[None], silo, kind, *asked)
    error = rounded_errors([stderr], most_loss(silo), count, silo, f"{kind} error", *asked)
    of_task = _measure_classes if loss.task == "classification" else _measure_numbers
    first, *others = of_task(loss, outputs, y, silo, kind, *asked)
    return np.array([first, float(mean[0]), *others, float(error[0]), count])


def _measure_classes(
    loss: Loss, outputs: Tensor, y: Tensor, silo: Silo, kind: str, *asked: NDArray[np.float32] | str
) -> tuple[float, float, float]:
    """Return accuracy, balanced accuracy and AUC of a classifier; arguments as in `measure`."""
    truth, predicted = y.cpu().numpy(), outputs.argmax(1).cpu().numpy()
    smallest = int(np.unique(truth, return_counts=True)[1].min())
    shares = [
        (predicted == truth).mean(),
        metrics.balanced_accuracy(truth, predicted),
        metrics.auc(truth, torch.softmax(outputs, 1).cpu().numpy()),
    ]
    accuracy, balanced, auc = rounded_shares(shares, np.array([len(truth), smallest, smallest]), silo, kind, *asked)
    return float(accuracy), float(balanced), float(auc)


def _measure_numbers(
    loss: Loss, outputs: Tensor, y: Tensor, silo: Silo, kind: str, *asked: NDArray[np.float32] | str
) -> tuple[float, float, float]:
    """Return R2, and RMSE and MAE in the target's units; arguments as in `measure`."""
    spread = SCORES["regression"].spread(silo.arrays.y)
    unit = silo.schema.target[1]
    right = SCORES["regression"].right(outputs, y, spread)
    r2 = rounded_right(right, silo, kind, *asked, spread=spread)
    error = (outputs.squeeze(-1) - y).double().cpu().numpy()
    means = []
    for name, each in ((SQUARED, error**2 / 2), (ABSOLUTE, np.abs(error))):
        part = capped(each, silo)
        lot = kind if LOSSES[name] is loss else f"{kind} {name}"  # what the loss says too is said alike
        means.append(float(rounded_losses(part.mean(keepdims=True), part[None], silo, lot, *asked)[0]))
    half_square, absolute = means
    return r2, unit * float(np.sqrt(2 * half_square)), unit * absolute


def rounded_right(
    right: NDArray[Any], silo: Silo, kind: str, *asked: NDArray[np.float32] | str, spread: float = 1.0, least: int = 1
) -> float:
    """Return the mean of `Outcome.right`, an accuracy or R2, rounded to what the number of samples can mean.

    Parameters
    ----------
    right : array
        One value a sample.
    silo, kind, *asked
        As in `silo.rounding.rounded`.
    spread : float
        The variance of a numeric target, in which errors are counted.
    least : int
        How many samples the mean must not tell apart.
    """
    if not silo.limits.round_measures:
        return float(right.mean())
    if right.dtype == bool:
        return float(rounded_shares(right.mean(), len(right), silo, kind, *asked, least=least))
    most, each = most_unexplained(silo, spread), _capped_right(right, silo, spread)
    error = max(float(each.std() / np.sqrt(len(each))), least * most / len(each))
    return min(1.0, float(rounded(each.mean(), error, silo, kind, *asked)))


def most_loss(silo: Silo) -> float:
    """Return L, up to which a sample's loss counts where measures are rounded."""
    return SCORES[silo.schema.task].most_loss(silo.schema.outputs)


def capped(losses: Floats, silo: Silo) -> Floats:
    """Return losses of samples, at most L each where the silo rounds its measures; L where a loss is not finite.

    A model of huge weights overflows at the samples with the largest values: were the mean not finite, it would tell
    exactly whether there is one.
    """
    if not silo.limits.round_measures:
        return losses
    found: Floats = np.where(np.isfinite(losses), np.minimum(losses, most_loss(silo)), most_loss(silo))
    return found


def rounded_errors(
    errors: Any, most: Any, count: int, silo: Silo, kind: str, *asked: NDArray[np.float32] | str, least: int = 1
) -> Floats:
    """Return standard errors of means as they are sent: rounded (`shown_errors`), and with the error of rounding.

    Parameters
    ----------
    errors, most, count, silo, kind, *asked, least
        As in `shown_errors`.

    Returns
    -------
    array
        The standard errors; NaN stays.
    """
    found = shown_errors(errors, most, count, silo, kind, *asked, least=least)
    with_rounding: Floats = found * np.sqrt(1 + added_error(silo) ** 2)
    return with_rounding


def shown_errors(
    errors: Any, most: Any, count: int, silo: Silo, kind: str, *asked: NDArray[np.float32] | str, least: int = 1
) -> Floats:
    """Return standard errors, rounded so that `least` samples are not told apart, and at least `least` M / n.

    Parameters
    ----------
    errors : array
        Standard errors of means.
    most : float or array
        M, up to which a sample counts.
    count : int
        n, the number of samples.
    silo, kind, *asked
        As in `silo.rounding.rounded`.
    least : int
        How many samples an error must not tell apart.

    Returns
    -------
    array
        The standard errors; NaN stays.
    """
    exact: Floats = np.asarray(errors, dtype=np.float64)
    if not silo.limits.round_measures:
        return exact
    one = np.asarray(most) / count
    floored = np.maximum(exact, least * one)
    step = np.maximum(floored / np.sqrt(2 * count), least * (np.sqrt(floored**2 + one**2) - floored))
    found: Floats = np.maximum(rounded(floored, step, silo, kind, *asked), least * one)
    return found


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
    outcome: Outcome,
    silo: Silo,
    kind: str,
    *asked: NDArray[np.float32] | str,
    least: int = COARSE,
) -> list[float]:
    """Return what `folds.COLUMNS` names, rounded to what the number of samples can mean.

    Parameters
    ----------
    columns : sequence of float
        Mean loss, accuracy or R2, and the standard errors of their differences from training alone.
    outcome : Outcome
        What the model does with each sample.
    silo, kind, *asked
        As in `silo.rounding.rounded`.
    least : int
        How many samples a measure must not tell apart: more than elsewhere, since a plan has many rounds.
    """
    if not silo.limits.round_measures:
        return list(columns)
    loss, _, *errors = columns
    count = len(outcome.loss)
    shown = rounded_losses(np.array([loss]), outcome.loss[None], silo, kind, *asked, least=least)
    spread = SCORES[silo.schema.task].spread(silo.arrays.y)
    share = rounded_right(outcome.right, silo, f"{kind} accuracy", *asked, spread=spread, least=least)
    most = np.array(_most_apart(outcome, silo, spread))
    given = rounded_errors(errors, most, count, silo, f"{kind} errors", *asked, least=least)
    return [float(shown[0]), share, *given.tolist()]


def changes(outcome: Outcome, other: Outcome, silo: Silo) -> tuple[Floats, Floats]:
    """Return by how much two models' losses, and their parts in accuracy or R2, differ for each sample.

    Where measures are rounded, differences count up to the most of `_most_apart`.

    Parameters
    ----------
    outcome, other : Outcome
        What the models do with each sample.
    silo : Silo
        The silo.
    """
    spread = SCORES[silo.schema.task].spread(silo.arrays.y)
    loss = capped(outcome.loss, silo) - capped(other.loss, silo)
    right, known = (_capped_right(each.right.astype(np.float64), silo, spread) for each in (outcome, other))
    if not silo.limits.round_measures:
        return loss, right - known
    of_loss, of_right = _most_apart(outcome, silo, spread)
    return np.clip(loss, -of_loss, of_loss), np.clip(right - known, -of_right, of_right)


def _most_apart(outcome: Outcome, silo: Silo, spread: float) -> tuple[float, float]:
    """Return up to which value differences of losses, and of parts in accuracy or R2, count."""
    numeric = outcome.right.dtype != bool
    return most_loss(silo) / APART, most_unexplained(silo, spread) / APART if numeric else 1.0


def most_unexplained(silo: Silo, spread: float) -> float:
    """Return up to which value a sample's part in 1 - R2 counts, given the variance of the target."""
    return 2 * most_loss(silo) / spread


def _capped_right(right: Floats, silo: Silo, spread: float) -> Floats:
    """Return samples' parts in accuracy or R2; of R2 not less than counts, where the silo rounds its measures."""
    if not silo.limits.round_measures:
        return right
    least = 1 - most_unexplained(silo, spread)
    found: Floats = np.maximum(np.where(np.isfinite(right), right, least), least)
    return found
