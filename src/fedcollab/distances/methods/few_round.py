"""Two rounds for all pairs: discriminators in closed form from every client's moments, judged on held-out folds.

    minimise over u, v_k   sum over sides, labels k   mean over the side's samples of ((u + v_k) . x~ - t)^2
                           + lambda (|u|^2 + sum_k |v_k|^2),        t = 1 at the first client, -1 at the second

    f(x, y) = [(u + v_y) . x~ > 0],      D_ij = mean over i of [f = i] + mean over j of [f = j] - 1

with x~ = (R x / sigma, 1), R a random projection to `width` features, sigma the root mean square length of R x in the
two clients, and lambda = ridge / (training samples of the smaller client). It is `cross` with a quadratic loss: one
linear discriminator per label with a shared part, cross-fitted over folds. What makes it cheap is that the quadratic
loss needs a client's second moments alone (`few_round_client.py`), sent once for all pairs and folds: training moments
are the total less the fold's. With P_k = (G_k + lambda)^-1, G_k, b_k the moments of label k averaged over the sides,

    u = ((1 + K) I - lambda sum_k P_k)^-1 sum_k P_k b_k,        u + v_k = P_k (b_k + lambda u).

With an emphasis e > 0, R x is multiplied by G^(e/2) / trace(G^(1 + e))^(1/2) instead of 1 / sigma, G the second moments
of R x in the two clients: directions in which samples differ more count for more before the penalty. Trained networks
put there what they tell apart, so that a few samples suffice to see labels named otherwise; a change of the images
themselves may lie elsewhere. Which it is shows: through an encoder both are tried (`CHOICES`), in the same messages,
and the one that finds the larger distances on average, over all pairs, is kept, in `settings` too. One choice of two by
a mean over hundreds of pairs makes no distance look larger than it is by more than a fraction of its standard error.

Fisher (1936) and Friedman (1989) for discriminants from moments; Bao, Wang, Wu, He (ICML 2023), Section 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab import seeds
from fedcollab.distances.methods.few_round_client import moments, unfolded, validate
from fedcollab.distances.plausible import impossible_accuracies, impossible_moments
from fedcollab.distances.request import Estimate, Floats, Request, places
from fedcollab.distances.sampling import folds as folding
from fedcollab.distances.sampling.resample import DRAWN, SET
from fedcollab.errors import InputError, number
from fedcollab.silo import privacy as privately
from fedcollab.wire.message import Message

#: emphasis and ridge that are tried through an encoder
CHOICES = ((0.0, 1.0), (0.5, 0.3))


@dataclass(frozen=True)
class FewRoundSettings:
    """Settings of `few-round` as they were used; `few_round.estimate` describes them.

    `privacy` is the noise as it was applied, `emphasis` the exponent e of the module's header.
    """

    labels: bool
    width: int
    folds: int
    ridge: float
    replicates: int
    min_samples: int
    privacy: dict[str, float] | None
    label_counts: str
    emphasis: float


def estimate(
    request: Request,
    *,
    labels: bool = True,
    width: int | None = None,
    folds: int | None = None,
    ridge: float | None = None,
    emphasis: float | str | None = None,
    replicates: int = 100,
    min_samples: int | None = None,
    privacy: float | Mapping[str, Any] | None = None,
    label_counts: str = "auto",
) -> Estimate:
    """Estimate the distances of the request's pairs in two rounds.

    Parameters
    ----------
    request : Request
        The pairs.
    labels : bool
        Whether discriminators see the label (C-divergence) or not (H-delta-H divergence).
    width : int, optional
        Features after projection, at most: 64, or with privacy 16 (fewer numbers, less noise on each).
    folds : int, optional
        Folds that each client's samples are cut into: 5, or with privacy 2.
    ridge : float, optional
        Strength of the penalty: 1, or that of the emphasis in `CHOICES` that was chosen.
    emphasis : float or str, optional
        A number from 0, or "auto": the better of `CHOICES`. The default is 0, through an encoder "auto".
    replicates : int
        Joint replicates of the matrix; 0: none.
    min_samples : int, optional
        The fewest samples that a client's numbers may be made of; the default is the runtime's.
    privacy : float or mapping, optional
        Epsilon, or a mapping with `epsilon` or `noise` (the multiplier), `delta` and `clip`; see `silo.privacy.read`.
    label_counts : str
        Whether label counts were "drawn" or "set"; "auto" finds out (see `sampling.resample`).

    Raises
    ------
    InputError
        If a setting is out of range, or settings exclude each other.
    """
    asked = privately.read(privacy, request.features(target=labels))
    if width is None:
        width = 16 if asked else 129 if request.numeric else 64  # with a numeric target, of 64 features
    folds = (2 if asked else 5) if folds is None else folds
    for name, value, least in (("width", width, 1), ("folds", folds, 2), ("replicates", replicates, 0)):
        number(name, value, at_least=least, whole=True)
    if emphasis is None:
        emphasis = "auto" if request.encoded and ridge is None and not asked else 0.0
    if ridge is not None:
        number("ridge", ridge, above=0)
    choices: Sequence[tuple[float, float]] = CHOICES
    if emphasis != "auto":
        choices = ((number("emphasis", emphasis, at_least=0), 1.0 if ridge is None else ridge),)
    elif asked or ridge is not None:
        raise InputError(f"`emphasis` (='auto') does not go with {'privacy' if asked else 'a `ridge` of your own'}")
    if asked and label_counts == SET:
        raise InputError("`label_counts` (='set') does not go with privacy: a sample's label would move others' folds")
    least, sampling = request.min_samples(min_samples), DRAWN if asked else request.sampling(label_counts)
    tried = [FewRoundSettings(labels, width, folds, b, replicates, least, asked, sampling, a) for a, b in choices]
    training = gather(request, tried[0])
    w = np.stack([train(request, settings, training) for settings in tried])
    mine = places(request.pairs)
    replies = request.ask(
        validate,
        {
            name: {
                "w": np.concatenate(list(w[:, own])),
                "targets": [int(request.pairs[p][0] == name) for p in own] * len(tried),
                "replicates": replicates,
            }
            for name, own in mine.items()
        },
    )
    replies = _possible(request, replies, {name: len(tried) * len(own) for name, own in mine.items()}, tried[0])
    totals: Floats = np.zeros((len(tried), len(request.pairs), 2 + replicates))
    for name, reply in replies.items():
        found, own = reply["found"], mine[name]
        if asked:
            found = noisy_summary(found[:, 0], request, name, asked["noise"], replicates)
        totals[:, own] += np.reshape(found, (len(tried), len(own), 2 + replicates))
    best = int(np.argmax(totals[:, :, 0].mean(axis=1)))
    total, settings = totals[best], tried[best]
    return Estimate(
        values=total[:, 0] - 1.0,
        stderr=np.sqrt(total[:, 1]),
        replicates=(total[:, 2:] - 1.0).T if replicates else None,
        settings=asdict(settings),
        privacy={name: {key: asked[key] for key in ("epsilon", "delta")} for name in mine} if asked else {},
    )


def _possible(
    request: Request, replies: dict[str, Message], pairs: Mapping[str, int], settings: FewRoundSettings
) -> dict[str, Message]:
    """Return the replies of the second round that can be accuracies; the other clients are lost."""
    asked = settings.privacy
    columns = 1 if asked else 2 + settings.replicates
    replies = request.expect(replies, "found", {name: (pairs[name], columns) for name in replies})
    if not request.runtime.checks:
        return replies
    doubts = {}
    for name, reply in replies.items():
        noise = asked["noise"] * privately.accuracy_sensitivity(pairs[name], request.quantity(name)) if asked else None
        doubts[name] = impossible_accuracies(reply["found"], noise)
    request.lose({name: why for name, why in doubts.items() if why is not None})
    return {name: reply for name, reply in replies.items() if doubts[name] is None}


def gather(request: Request, settings: FewRoundSettings) -> dict[str, Floats]:
    """Run the first round: have every client send the moments of its folds.

    Parameters
    ----------
    request : Request
        The clients.
    settings : FewRoundSettings
        The settings of the method.

    Returns
    -------
    dict
        For each client that answered, the mean moments of what each fold leaves; see `train_moments`.
    """
    folds = settings.folds
    classes = max(1, request.classes) if settings.labels else 1
    plan: Message = {"seed": request.seed, "width": settings.width, "folds": folds, "classes": classes}
    if request.numeric and settings.labels:
        plan["target"] = True
    plan |= {"min_samples": settings.min_samples, "privacy": settings.privacy, "label_counts": settings.label_counts}
    replies = request.ask(moments, dict.fromkeys(request.names, plan))
    side = min(settings.width, request.features(target=settings.labels)) + 1
    replies = request.expect(replies, "m", dict.fromkeys(replies, (folds, classes, side * (side + 1) // 2)))
    noisy = bool(settings.privacy)
    if request.runtime.checks and not noisy:
        everyone = request.squared_length()
        doubts = {
            name: impossible_moments(reply["m"], request.quantity(name), everyone) for name, reply in replies.items()
        }
        request.lose({name: why for name, why in doubts.items() if why is not None})
        replies = {name: reply for name, reply in replies.items() if doubts[name] is None}
    return {name: train_moments(reply["m"], request.quantity(name), noisy) for name, reply in replies.items()}


def train(request: Request, settings: FewRoundSettings, training: Mapping[str, Floats]) -> NDArray[np.float32]:
    """Compute the discriminators of all pairs from the clients' moments.

    Parameters
    ----------
    request : Request
        The pairs.
    settings : FewRoundSettings
        The settings of the method.
    training : mapping
        The moments of each client, from `gather`; pairs without both get zeros.

    Returns
    -------
    array of float32
        Weights (pairs, folds, labels, d + 1).
    """
    folds, asked = settings.folds, settings.privacy
    classes = max(1, request.classes) if settings.labels else 1
    side = min(settings.width, request.features(target=settings.labels)) + 1
    sizes = [folding.largest(min(request.quantity(name) for name in pair), folds) for pair in request.pairs]
    w = np.zeros((len(request.pairs), folds, classes, side), dtype=np.float32)
    for position, (first, second) in enumerate(request.pairs):
        if first not in training or second not in training:
            continue
        penalty = settings.ridge / sizes[position]
        if asked:
            left = [folding.largest(request.quantity(name), folds) for name in (first, second)]
            spread = (
                asked["noise"] * privately.SENSITIVITY * math.sqrt(folds - 1) * math.hypot(*(0.5 / n for n in left))
            )
            w[position] = noisy_discriminator(training[first], training[second], penalty, spread)
        else:
            w[position] = discriminator(training[first], training[second], penalty, settings.emphasis)
        request.progress(position + 1, len(request.pairs))
    return w


def train_moments(triangles: NDArray[np.float32], quantity: int, noisy: bool = False) -> Floats:
    """Return the mean moments of what each fold leaves, from the folds' sums.

    The last entry of a triangle is the number of samples in its fold with its label; with noise, folds are taken to be
    of equal size.

    Parameters
    ----------
    triangles : array
        Sums (folds, labels, triangle), as a client sends them.
    quantity : int
        The client's training samples.
    noisy : bool
        Whether noise was added to the sums.

    Returns
    -------
    array
        Mean moments (folds, labels, d + 1, d + 1).
    """
    folds, sums = len(triangles), unfolded(triangles)
    equal = [quantity // folds + (fold < quantity % folds) for fold in range(folds)]
    held = np.array(equal) if noisy else np.rint(triangles[..., -1].sum(axis=1, dtype=np.float64))
    mean: Floats = (sums.sum(axis=0) - sums) / np.maximum(quantity - held, 1)[:, None, None, None]
    return mean


def discriminator(first: Floats, second: Floats, penalty: float, emphasis: float = 0.0) -> Floats:
    """Return the weights of one pair's discriminators, for x~ before it is divided by sigma.

    Parameters
    ----------
    first, second : array
        The moments (folds, labels, d + 1, d + 1) of the two clients.
    penalty : float
        lambda.
    emphasis : float
        e.

    Returns
    -------
    array
        Weights (folds, labels, d + 1).
    """
    mean = (first + second) / 2
    features = mean.shape[-1] - 1
    if emphasis:
        turn = stretch(mean.sum(axis=1), emphasis)[:, None]
        targets = turn @ ((first - second)[..., -1:] / 2)
        weights: Floats = (turn @ shared_ridge(turn @ mean @ turn, targets[..., 0], penalty)[..., None])[..., 0]
        return weights
    square = np.trace(mean[..., :features, :features].sum(axis=1), axis1=-2, axis2=-1)  # sigma^2, fold by fold
    scale = np.ones((len(mean), 1, features + 1))
    scale[:, 0, :features] = np.where(square > 1e-12, square, 1.0)[:, None] ** -0.5
    moments = mean * scale[..., None] * scale[..., None, :]
    targets = (first - second)[..., -1] / 2 * scale
    return shared_ridge(moments, targets, penalty) * scale


def stretch(moments: Floats, emphasis: float) -> Floats:
    """Return G^(e/2) / trace(G^(1 + e))^(1/2) for the features, and 1 for the constant.

    Parameters
    ----------
    moments : array
        G (folds, d + 1, d + 1).
    emphasis : float
        e.

    Returns
    -------
    array
        Matrices (folds, d + 1, d + 1).
    """
    features = moments.shape[-1] - 1
    values, vectors = np.linalg.eigh(moments[:, :features, :features])
    values = np.maximum(values, 0.0)
    sizes = values ** (emphasis / 2)
    length = (sizes**2 * values).sum(axis=1, keepdims=True)
    sizes /= np.where(length > 1e-12, length, 1.0) ** 0.5
    turn: Floats = np.zeros_like(moments)
    turn[:, :features, :features] = (vectors * sizes[:, None]) @ np.swapaxes(vectors, 1, 2)
    turn[:, features, features] = 1.0
    return turn


def noisy_discriminator(first: Floats, second: Floats, penalty: float, spread: float) -> Floats:
    """Return the weights of one pair's discriminators from moments with noise.

    The penalty grows by the noise matrix's largest eigenvalue, spread sqrt(2 (d + 1)) (Wigner, 1955; as in Wang's
    AdaSSP, 2018), and eigenvalues below 0, which no moments have, are set to 0. Samples are no longer than 1 already.

    Parameters
    ----------
    first, second : array
        The noisy moments (folds, labels, d + 1, d + 1) of the two clients.
    penalty : float
        lambda.
    spread : float
        The standard deviation of the noise on the diagonal of their mean.

    Returns
    -------
    array
        Weights (folds, labels, d + 1).
    """
    values, vectors = np.linalg.eigh((first + second) / 2)
    moments = (vectors * np.maximum(values, 0.0)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return shared_ridge(moments, (first - second)[..., -1] / 2, penalty + spread * np.sqrt(2 * first.shape[-1]))


def noisy_summary(accuracy: Floats, request: Request, name: str, noise: float, replicates: int) -> Floats:
    """Return accuracy, variance and replicates of a client's pairs from noisy accuracies alone.

    Replicates are normal and drawn by the server, a pair at a time: what a client's pairs share is not known here.

    Parameters
    ----------
    accuracy : array
        The noisy accuracy of each pair.
    request : Request
        Gives the client's quantity and the seed.
    name : str
        The client.
    noise : float
        The noise multiplier.
    replicates : int
        R, how many replicates to draw.

    Returns
    -------
    array
        (pairs, 2 + R).
    """
    count = request.quantity(name)
    share = np.clip(accuracy, 0.5 / count, 1 - 0.5 / count)
    variance = share * (1 - share) / count + (noise * privately.accuracy_sensitivity(len(accuracy), count)) ** 2
    drawn = seeds.generator(request.seed, "few-round-replicates", name).normal(size=(len(accuracy), replicates))
    return np.concatenate(
        [np.stack([accuracy, variance], 1), accuracy[:, None] + np.sqrt(variance)[:, None] * drawn], 1
    )


def shared_ridge(moments: Floats, targets: Floats, penalty: float) -> Floats:
    """Return u + v_k, the solution in the module's header.

    Parameters
    ----------
    moments : array
        G (..., K, p, p).
    targets : array
        b (..., K, p).
    penalty : float
        lambda.

    Returns
    -------
    array
        Weights (..., K, p).
    """
    identity = np.eye(moments.shape[-1])
    inverse = np.linalg.inv(moments + penalty * identity)
    system = (1 + moments.shape[-3]) * identity - penalty * inverse.sum(axis=-3)
    u = np.linalg.solve(system, np.einsum("...kpq,...kq->...p", inverse, targets)[..., None])[..., 0]
    weights: Floats = np.einsum("...kpq,...kq->...kp", inverse, targets + penalty * u[..., None, :])
    return weights
