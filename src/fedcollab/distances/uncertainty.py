"""How sure a client's held-out accuracy is: its variance, and replicates that all of the client's pairs share.

    a     = mean over the n samples of h_s,  h_s the share of repeats in which sample s was told right
    Var a = (1 + k / sqrt(m)) var(h) / n + 1 / (12 (n + 1)^2),     k = 2.5
    a_r   = a + sqrt((1 + k / sqrt(m)) (n + 1) / (n - 1)) (sum_s u_rs h_s - a) + (v_r - 1/2) / (n + 1)

The first term is the sampling of the validation samples; k / sqrt(m) adds that of the m training samples, on which the
same predictions depend (k is calibrated on simulated clients and label shift, see docs/distances.md). The last term is
one unseen sample whose chance of being told right is anything, v_r uniform on [0, 1]: 14 right out of 14 is not
certainty. u_r are Bayesian bootstrap weights (Rubin, 1981), drawn once for a client and used in all of its pairs, so
that replicates of the matrix are joint.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedcollab import seeds

Floats = NDArray[np.float64]

TRAINING = 2.5


def summary(hits: Floats, sizes: NDArray[np.int64], replicates: int, seed: int, name: str) -> dict[str, Floats]:
    """`accuracy`, `variance` (pairs, directions), `replicates` (pairs, directions, R) of hits (pairs, directions, n).

    All that a client sends of its held-out predictions: means over its samples.
    """
    count = hits.shape[2]
    rng = seeds.generator(seed, "replicates", name)
    weights = rng.exponential(size=(replicates, count))
    weights /= weights.sum(axis=1, keepdims=True)
    unseen = rng.random(replicates) - 0.5
    training = 1.0 + TRAINING / np.sqrt(sizes[:, None])
    accuracy: Floats = hits.mean(axis=2)
    moved = (hits @ weights.T - accuracy[..., None]) * np.sqrt(training * (count + 1) / (count - 1))[..., None]
    return {
        "accuracy": accuracy,
        "variance": training * hits.var(axis=2, ddof=1) / count + 1.0 / (12.0 * (count + 1) ** 2),
        "replicates": accuracy[..., None] + moved + unseen / (count + 1),
    }
