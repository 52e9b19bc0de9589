"""How sure a client's held-out accuracy is: its variance, and replicates that all of the client's pairs share.

    a     = mean over the n samples of h_s,  h_s the share of repeats in which sample s was predicted right
    Var a = t var(h) / n + 1 / (12 (n + 1)^2)
    a_r   = a + sqrt(t (n + 1) / (n - 1)) (sum_s u_rs h_s - a) + (v_r - 1/2) / (n + 1)

The first term is the sampling of the validation samples; t > 1 adds that of the training samples, on which the same
predictions depend: t = 1 + 2.5 / sqrt(m) where m samples train (`cross`), 1.75 where all but the fold do (`few-round`);
both calibrated on label shift, see docs/distances-measured.md. The last term is one unseen sample that is predicted
right with any chance, v_r uniform on [0, 1]: 14 right out of 14 is not certainty. u_r are Bayesian bootstrap weights
(Rubin, 1981), drawn once for a client and used in all of its pairs, so that replicates of the matrix are joint.

Samples of one group (one patient) are no independent evidence: weights are drawn for groups, and n counts groups where
the variance of the mean is that of the groups' sums.

The draws depend on the client's data (`Silo.secret`): a server that could repeat them could solve the replicates for
every single h_s. Where measures are rounded, replicates are drawn from the rounded mean and variance alone, for each
pair on its own: from those of the samples a server could tell exactly whether two discriminators differ on any of them.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab import seeds
from fedcollab.silo.rounding import added_error, rounded, rounded_shares
from fedcollab.wire.silo import Silo

Floats = NDArray[np.float64]

WHOLE = 1.75  # t where all but the held-out fold train


def partial(sizes: NDArray[np.int64]) -> Floats:
    """Return the factor t for training sets of these sizes, few samples beside all (`cross`)."""
    factor: Floats = 1.0 + 2.5 / np.sqrt(sizes)
    return factor


def summary(
    hits: Floats, training: Floats, replicates: int, seed: int, silo: Silo, asked: NDArray[Any]
) -> dict[str, Floats]:
    """Return all that a client sends of its held-out predictions: means over its samples.

    Parameters
    ----------
    hits : array
        h (pairs, directions, n): the share of repeats in which each sample was predicted right.
    training : array
        The factor t of each pair.
    replicates : int
        R, how many replicates to draw.
    seed : int
        The draws depend on it, and on the client's data.
    silo : Silo
        The client; with limits, its means are rounded to what their number of samples can mean.
    asked : array
        The weights that the server sent: how a mean is rounded depends on them.

    Returns
    -------
    dict
        `accuracy` and `variance` (pairs, directions), `replicates` (pairs, directions, R).
    """
    groups = silo.arrays.groups
    count = hits.shape[2] if groups is None else int(groups.max()) + 1
    training = training[:, None]
    rng = seeds.generator(seed, "replicates", silo.name, silo.secret)
    weights = rng.exponential(size=(replicates, count))
    weights = weights if groups is None else weights[:, groups]
    weights /= weights.sum(axis=1, keepdims=True)
    unseen = rng.random(replicates) - 0.5
    exact: Floats = hits.mean(axis=2)
    accuracy = rounded_shares(exact, count, silo, "accuracy", asked)
    variance = _variance(hits, groups) / count
    if silo.limits.round_measures:  # one sample more or less is no more than the rounding
        variance = np.maximum(variance, 2.0 / count**2)
    variance = rounded(variance, variance * np.sqrt(2.0 / count), silo, "variance", asked)
    if silo.limits.round_measures:
        variance = np.maximum(variance, 1.0 / count**2)  # an error may be larger than the variance
        draw = seeds.generator(seed, "replicates", silo.secret, hashlib.sha256(asked.tobytes()).hexdigest())
        moved = np.sqrt(variance)[..., None] * draw.standard_normal((*exact.shape, replicates))
    else:
        moved = hits @ weights.T - exact[..., None]
        moved *= np.sqrt((count + 1) / (count - 1))
    training = training + added_error(silo) ** 2  # that of rounding, in the same units
    moved *= np.sqrt(training)[..., None]
    return {
        "accuracy": accuracy,
        "variance": training * variance + 1.0 / (12.0 * (count + 1) ** 2),
        "replicates": accuracy[..., None] + moved + unseen / (count + 1),
    }


def _variance(hits: Floats, groups: NDArray[np.int64] | None) -> Floats:
    """Return the variance of one sample; with groups, of one group's contribution to the mean."""
    if groups is None:
        alone: Floats = hits.var(axis=2, ddof=1)
        return alone
    count = int(groups.max()) + 1
    member = np.equal.outer(groups, np.arange(count)).astype(np.float64)
    sums = (hits - hits.mean(axis=2, keepdims=True)) @ member
    together: Floats = (sums**2).sum(axis=2) * count**2 / hits.shape[2] ** 2 / (count - 1)
    return together
