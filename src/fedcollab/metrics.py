"""How good the models are for each client, and what each client gained by taking part. NumPy alone.

    Acc   the plain mean of the clients' accuracies
    IPR   incentivised participation rate: the share of clients that do better than by training alone
    RSD   reward standard deviation: the population standard deviation of the gains over training alone

Section 5.1 of the paper. All are shares in [0, 1], not percentages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcollab.errors import InputError

Floats = NDArray[np.float64]


def acc(accuracy: ArrayLike) -> float:
    """Return the mean accuracy over clients.

    Parameters
    ----------
    accuracy : array_like
        One accuracy a client.

    Returns
    -------
    float
        Their plain mean.

    Examples
    --------
    >>> acc([0.5, 0.75])
    0.625
    """
    return float(_values("accuracy", accuracy).mean())


def gains(accuracy: ArrayLike, reference: ArrayLike) -> Floats:
    """Return what each client gained over a reference: its local model, or the global one.

    Parameters
    ----------
    accuracy : array_like
        One accuracy a client.
    reference : array_like
        The accuracy of the reference model for each client, in the same order.

    Returns
    -------
    array
        `accuracy` minus `reference`.

    Raises
    ------
    InputError
        If the two are not of the same length.

    Examples
    --------
    >>> gains([0.75, 0.5], [0.5, 0.75])
    array([ 0.25, -0.25])
    """
    ours, theirs = _values("accuracy", accuracy), _values("reference", reference)
    if ours.shape != theirs.shape:
        raise InputError(f"`accuracy` has {len(ours)} clients and the reference {len(theirs)}; expected as many")
    return ours - theirs


def ipr(accuracy: ArrayLike, local_accuracy: ArrayLike) -> float:
    """Return the share of clients that do better than by training alone (incentivised participation rate).

    Parameters
    ----------
    accuracy : array_like
        One accuracy a client.
    local_accuracy : array_like
        What each client reaches by training alone, in the same order.

    Returns
    -------
    float
        The share of clients with a gain above 0, from 0 to 1.

    Examples
    --------
    >>> ipr([0.9, 0.8, 0.7, 0.6], [0.8, 0.8, 0.6, 0.7])
    0.5
    """
    return float((gains(accuracy, local_accuracy) > 0).mean())


def rsd(accuracy: ArrayLike, local_accuracy: ArrayLike) -> float:
    """Return the population standard deviation of the gains over training alone (reward standard deviation).

    Parameters
    ----------
    accuracy : array_like
        One accuracy a client.
    local_accuracy : array_like
        What each client reaches by training alone, in the same order.

    Returns
    -------
    float
        The standard deviation; 0 where all clients gain the same.

    Examples
    --------
    >>> rsd([0.75, 1.0], [0.75, 0.75])
    0.125
    """
    return float(gains(accuracy, local_accuracy).std())


def balanced_accuracy(labels: ArrayLike, predicted: ArrayLike) -> float:
    """Return the mean over classes of the share of each class that is recognised; classes without samples do not count.

    Parameters
    ----------
    labels : array_like
        The true class of each sample.
    predicted : array_like
        The predicted class of each sample.

    Returns
    -------
    float
        The balanced accuracy, from 0 to 1.

    Examples
    --------
    >>> balanced_accuracy([0, 0, 0, 1], [0, 0, 0, 0])
    0.5
    """
    truth, guess = np.asarray(labels), np.asarray(predicted)
    return float(np.mean([(guess[truth == label] == label).mean() for label in np.unique(truth)]))


def auc(labels: ArrayLike, scores: ArrayLike) -> float:
    """Return the area under the ROC curve, ties counted half; with several classes, the mean of one against the rest.

    Parameters
    ----------
    labels : array_like
        The true class index of each sample.
    scores : array_like
        The score of class 1 of each sample, or one column of scores a class.

    Returns
    -------
    float
        The area, from 0 to 1; NaN if the labels are all of one class.

    Examples
    --------
    >>> auc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    0.75
    """
    truth, score = np.asarray(labels), np.asarray(scores, dtype=np.float64)
    present = np.unique(truth)
    if len(present) < 2:
        return float("nan")
    if score.ndim == 1:
        return _auc(truth == 1, score)
    if score.shape[1] == 2:
        return _auc(truth == 1, score[:, 1])
    return float(np.mean([_auc(truth == label, score[:, label]) for label in present]))


def verdict(
    client: str,
    accuracy: float,
    local_accuracy: float,
    global_accuracy: float | None = None,
    *,
    tolerance: float = 0.0,
    interval: tuple[float, float] | None = None,
) -> str:
    """Say in one sentence, for the people at a client, what taking part gave them.

    Parameters
    ----------
    client : str
        The client's name.
    accuracy : float
        Its accuracy in its coalition.
    local_accuracy : float
        Its accuracy when it trains alone.
    global_accuracy : float, optional
        Its accuracy with one model for everyone.
    tolerance : float
        A gain or loss over training alone up to this size counts as none.
    interval : tuple of float, optional
        The 90 % interval of the gain over training alone (see `fedcollab.uncertainty`): a gain or loss counts only if 0
        is outside. One of NaN is as none.

    Returns
    -------
    str
        The sentence.

    Examples
    --------
    >>> verdict("north", 0.91, 0.86, 0.47)
    'north gains 5.0 points over training alone (91.0 against 86.0) and 44.0 over one model for everyone (47.0).'
    >>> verdict("east", 0.91, 0.86, 0.91)
    'east gains 5.0 points over training alone (91.0 against 86.0); one model for everyone does as well (91.0).'
    >>> verdict("south", 0.91, 0.86, interval=(-0.02, 0.11))
    'south: no clear difference to training alone (91.0 against 86.0; 90 % interval of the gain −2.0 to +11.0).'
    """
    gain = accuracy - local_accuracy
    known = interval is not None and not np.isnan(interval).any()
    low, high = interval if interval is not None and known else (gain - tolerance, gain + tolerance)
    against = f"{100 * accuracy:.1f} against {100 * local_accuracy:.1f}"
    if known and low < high:
        ends = f"{100 * low:+.1f} to {100 * high:+.1f}".replace("-", "−")
        against = f"{against}; 90 % interval of the gain {ends}"
    if low > 0:
        text = f"{client} gains {100 * gain:.1f} points over training alone ({against})"
    elif high < 0:
        text = f"{client} loses {-100 * gain:.1f} points by taking part ({against}): it is better off alone"
    elif known and low < high:
        text = f"{client}: no clear difference to training alone ({against})"
    else:
        text = f"{client} does as well as alone ({against})"
    if global_accuracy is None:
        return text + "."
    over = accuracy - global_accuracy
    if abs(over) < 0.0005:
        return f"{text}; one model for everyone does as well ({100 * global_accuracy:.1f})."
    word = "and" if (over >= 0) == (low > 0) else "but"
    verb = f"{100 * over:.1f}" if over >= 0 else f"{-100 * over:.1f} points less than"
    return f"{text} {word} {verb} {'over ' if over >= 0 else ''}one model for everyone ({100 * global_accuracy:.1f})."


def error_verdict(
    client: str,
    error: float,
    local_error: float,
    global_error: float | None = None,
    *,
    interval: tuple[float, float] | None = None,
) -> str:
    """Say in one sentence what taking part gave a client whose model predicts a number, in the target's units.

    Parameters
    ----------
    client : str
        The client's name.
    error : float
        The root mean squared error of its model in its coalition.
    local_error : float
        That of the model that it trains alone.
    global_error : float, optional
        That of one model for everyone.
    interval : tuple of float, optional
        The 90 % interval of how much lower the error is than alone: a gain or loss counts only if 0 is outside. One of
        NaN says that there are too few test samples for an interval.

    Returns
    -------
    str
        The sentence.

    Examples
    --------
    >>> error_verdict("north", 10.3, 11.5, interval=(0.4, 2.0))
    'north gains over training alone: RMSE 10.3 against 11.5 (1.2 lower; 90 % interval 0.4 lower to 2 lower).'
    >>> error_verdict("south", 10.3, 10.0, 12.0)
    'south loses by taking part: RMSE 10.3 against 10 (0.3 higher): it is better off alone; one model for everyone: 12.'
    >>> error_verdict("east", 10.3, 10.0, interval=(float("nan"), float("nan")))
    'east: too few test samples to tell: RMSE 10.3 against 10 (0.3 higher).'
    """
    gain = local_error - error
    known = interval is not None and not np.isnan(interval).any()
    low, high = interval if interval is not None and known else (gain, gain)
    against = f"RMSE {in_units(error)} against {in_units(local_error)} ({lower(gain)}"
    against += f"; 90 % interval {lower(low)} to {lower(high)})" if known else ")"
    if interval is not None and not known:
        text = f"{client}: too few test samples to tell: {against}"
    elif low > 0:
        text = f"{client} gains over training alone: {against}"
    elif high < 0:
        text = f"{client} loses by taking part: {against}: it is better off alone"
    else:
        word = "no clear difference to training alone" if known else "as good as alone"
        text = f"{client}: {word}: {against}"
    return f"{text}." if global_error is None else f"{text}; one model for everyone: {in_units(global_error)}."


def in_units(value: float) -> str:
    """Return a figure in a target's units, with three significant digits.

    Parameters
    ----------
    value : float
        The figure.

    Examples
    --------
    >>> in_units(0.12345), in_units(12345.6), in_units(2.0), in_units(-1.5)
    ('0.123', '12,300', '2', '−1.5')
    """
    if value == 0 or not np.isfinite(value):
        return f"{value:g}"
    rounded = round(value, 2 - int(np.floor(np.log10(abs(value)))))
    return (f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:.3g}").replace("-", "−")


def lower(gain: float) -> str:
    """Return by how much an error is lower, or higher, as text.

    Parameters
    ----------
    gain : float
        By how much it is lower; negative: higher.

    Examples
    --------
    >>> lower(0.41), lower(-2.0)
    ('0.41 lower', '2 higher')
    """
    return f"{in_units(abs(gain))} {'higher' if gain < 0 else 'lower'}"


def summary(
    accuracy: ArrayLike, local_accuracy: ArrayLike | None = None, global_accuracy: ArrayLike | None = None
) -> dict[str, float]:
    """Return the figures of a training over all clients.

    Parameters
    ----------
    accuracy : array_like
        One accuracy a client.
    local_accuracy : array_like, optional
        What each client reaches by training alone.
    global_accuracy : array_like, optional
        What each client reaches with one model for everyone.

    Returns
    -------
    dict
        `acc`; with `local_accuracy` also `ipr`, `rsd` and `gain_over_local`; with `global_accuracy` also
        `gain_over_global`. The gains are means over clients.

    Examples
    --------
    >>> summary([0.75, 1.0], [0.75, 0.75])
    {'acc': 0.875, 'ipr': 0.5, 'rsd': 0.125, 'gain_over_local': 0.125}
    """
    values = {"acc": acc(accuracy)}
    if local_accuracy is not None:
        values |= {"ipr": ipr(accuracy, local_accuracy), "rsd": rsd(accuracy, local_accuracy)}
        values |= {"gain_over_local": float(gains(accuracy, local_accuracy).mean())}
    if global_accuracy is not None:
        values |= {"gain_over_global": float(gains(accuracy, global_accuracy).mean())}
    return values


def verdicts(
    names: Sequence[str],
    accuracy: ArrayLike,
    local_accuracy: ArrayLike,
    global_accuracy: ArrayLike | None = None,
    *,
    intervals: Sequence[tuple[float, float]] | None = None,
) -> list[str]:
    """Return the sentence of `verdict` for every client.

    Parameters
    ----------
    names : sequence of str
        The clients' names.
    accuracy, local_accuracy : array_like
        The accuracy of each client in its coalition and when it trains alone, in the order of `names`.
    global_accuracy : array_like, optional
        The accuracy of each client with one model for everyone.
    intervals : sequence of tuples of float, optional
        The 90 % interval of each client's gain over training alone.

    Returns
    -------
    list of str
        One sentence a client, in the order of `names`.

    Examples
    --------
    >>> len(verdicts(["north", "south"], [0.9, 0.8], [0.8, 0.8]))
    2
    """
    ours, alone = _values("accuracy", accuracy), _values("local_accuracy", local_accuracy)
    everyone: list[Any] = [None] * len(ours) if global_accuracy is None else list(np.asarray(global_accuracy))
    known: list[Any] = [None] * len(ours) if intervals is None else list(intervals)
    rows = zip(names, ours.tolist(), alone.tolist(), everyone, known, strict=True)
    return [verdict(*row, interval=interval) for *row, interval in rows]


def _values(name: str, values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not array.size:
        raise InputError(f"`{name}` has shape {array.shape}; expected one value a client")
    return array


def _auc(positive: NDArray[np.bool_], score: Floats) -> float:
    """Return the chance that a positive sample scores above a negative one (Mann-Whitney), from mean ranks."""
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(counts) - (counts - 1) / 2
    first, second = int(positive.sum()), int((~positive).sum())
    return float((mean_rank[inverse][positive].sum() - first * (first + 1) / 2) / (first * second))


def total_variation(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the total variation distance `sum(abs(p - q)) / 2` over the last axis.

    Parameters
    ----------
    first, second : array
        Probabilities that sum to 1 over the last axis.

    Returns
    -------
    array
        From 0 (alike) to 1 (nothing in common), without the last axis.

    Examples
    --------
    >>> float(total_variation(np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.5, 0.5])))
    0.5
    """
    total: NDArray[np.float64] = np.abs(first - second).sum(axis=-1) / 2
    return total
