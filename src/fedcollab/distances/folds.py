"""How a client divides its own samples: random folds and nested training sets, the same whoever the partner is.

A repeat is one random order of the client's samples, cut into folds. With fold f held out, the training set of size m
is the first m samples that follow the fold in that order. So a pair's estimate depends on the two clients, the seed and
the sizes alone, never on who else takes part; and folds are random, not stratified by label: held-out samples of a
stratified fold remember what was left for training, which biases small clients.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedcollab import seeds

Ints = NDArray[np.int64]


def largest(quantity: int, folds: int) -> int:
    """The largest training set that every fold of a client leaves.

    >>> largest(14, 5), largest(2, 5)
    (11, 1)
    """
    return quantity - -(-quantity // folds)


def order(seed: int, name: str, repeat: int, quantity: int) -> Ints:
    """The random order of a client's samples in one repeat."""
    return seeds.generator(seed, "folds", name, repeat).permutation(quantity)


def split(samples: Ints, folds: int, fold: int, size: int) -> tuple[Ints, Ints]:
    """Training set of `size` samples, and the held-out fold; the latter is empty where samples are fewer than folds.

    >>> [part.tolist() for part in split(np.arange(7), 3, 1, 4)]
    [[5, 6, 0, 1], [3, 4]]
    """
    parts = np.array_split(samples, folds)
    return np.concatenate([*parts[fold + 1 :], *parts[:fold]])[:size], parts[fold]
