"""How sure a client's held-out accuracy is: its variance, and replicates that all of the client's pairs share.

    a     = mean over the n samples of h_s,  h_s the share of repeats in which sample s was told right
    Var a = (1 + 8 / m) var(h) / n + 1 / (4 (n + 1)^2)
    a_r   = a + sqrt((1 + 8 / m) (n + 1) / (n - 1)) (sum_s u_rs h_s - a) + (coin_r - 1/2) / (n + 1)

The first term is the sampling of the validation samples; 8 / m adds that of the m training samples, on which the same
predictions depend (the factor is calibrated on label shift, see docs/distances.md). The last term is one unseen sample
that may be told right or wrong: 14 right out of 14 is not certainty. u_r are Bayesian bootstrap weights (Rubin, 1981),
drawn once for a client and used in all of its pairs, so that replicates of the matrix are joint.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedcollab import seeds

Floats = NDArray[np.float64]

TRAINING = 8.0


def summary(hits: Floats, sizes: NDArray[np.int64], replicates: int, seed: int, name: str) -> dict[str, Floats]:
    """`accuracy`, `variance` (pairs, directions), `replicates` (pairs, directions, R) of hits (pairs, directions, n).

    All that a client sends of its held-out predictions: means over its samples.
    """
    count = hits.shape[2]
    rng = seeds.generator(seed, "replicates", name)
    weights = rng.exponential(size=(replicates, count))
    weights /= weights.sum(axis=1, keepdims=True)
    coin = rng.integers(0, 2, size=replicates) - 0.5
    training = 1.0 + TRAINING / sizes[:, None]
    accuracy: Floats = hits.mean(axis=2)
    moved = (hits @ weights.T - accuracy[..., None]) * np.sqrt(training * (count + 1) / (count - 1))[..., None]
    return {
        "accuracy": accuracy,
        "variance": training * hits.var(axis=2, ddof=1) / count + 0.25 / (count + 1) ** 2,
        "replicates": accuracy[..., None] + moved + coin / (count + 1),
    }
