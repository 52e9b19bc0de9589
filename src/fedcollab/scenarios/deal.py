"""Dealing out a pool of labelled samples: how many of each label a client gets, and which ones.

A count table (clients x labels) is made first, either exactly (the mix, rounded) or i.i.d. (labels drawn from the mix).
Then each label's samples are shuffled once and dealt: first every client's test samples, then the training samples.
No sample is dealt twice, except that i.i.d. draws may ask for more of a label than the pool has: then training
samples (never test samples) are dealt a second time from the start, to another client than the first time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedcollab.errors import InputError
from fedcollab.metrics import total_variation
from fedcollab.seeds import generator

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def apportion(total: int, mix: Floats) -> Ints:
    """Share `total` samples out over the labels in proportion to `mix`, rounded so that they sum to `total`.

    The largest remainders are rounded up (Hamilton's method); where rounding each label by itself sums to the total,
    as in all of the paper's settings, that is the same.

    >>> apportion(14, np.array([1, 2, 2, 2, 0]) / 7).tolist()
    [2, 4, 4, 4, 0]
    """
    ideal = total * mix / mix.sum()
    counts: Ints = np.floor(ideal + 1e-9).astype(np.int64)
    remainder = np.where(mix > 0, ideal - counts, -1.0)
    counts[np.argsort(-remainder, kind="stable")[: total - counts.sum()]] += 1
    return counts


def count_table(totals: Ints, mixes: Floats, *, iid: bool, seed: int, use: str) -> Ints:
    """Return how many samples of each label each client gets.

    Parameters
    ----------
    totals : array of int
        Samples of each client.
    mixes : array of shape (clients, labels)
        The share of each label at each client.
    iid : bool
        Whether labels are drawn independently from the mix, instead of the mix rounded to whole samples.
    seed : int
        Decides the draw.
    use : str
        "train" or "test": the two are drawn independently.

    Returns
    -------
    array of int of shape (clients, labels)
    """
    if iid:
        rows = [
            generator(seed, "scenario", use, client).multinomial(total, mix / mix.sum())
            for client, (total, mix) in enumerate(zip(totals, mixes, strict=True))
        ]
    else:
        rows = [apportion(int(total), mix) for total, mix in zip(totals, mixes, strict=True)]
    return np.array(rows, dtype=np.int64)


def deal(labels: Ints, train: Ints, test: Ints, *, seed: int, reuse: bool = False) -> list[tuple[Ints, Ints]]:
    """Choose each client's training and test samples.

    Parameters
    ----------
    labels : array of int
        The label of each sample of the pool.
    train, test : array of shape (clients, labels)
        How many samples of each label each client gets.
    seed : int
        Decides which samples, and their order.
    reuse : bool
        Whether training samples may be dealt a second time where the pool has too few.

    Returns
    -------
    list of (train, test)
        Positions in the pool, shuffled, for each client.

    Raises
    ------
    InputError
        If the pool has too few samples of a label.
    """
    clients, width = train.shape
    chosen: list[tuple[list[Ints], list[Ints]]] = [([], []) for _ in range(clients)]
    for label in range(width):
        pool = np.flatnonzero(labels == label)
        wanted_train, wanted_test = int(train[:, label].sum()), int(test[:, label].sum())
        if wanted_train + wanted_test == 0:
            continue
        rest = len(pool) - wanted_test
        if rest < (train[:, label].max() if reuse else wanted_train):
            raise InputError(
                f"the clients need {wanted_train} training and {wanted_test} test samples of label {label}, but the "
                f"data set has {len(pool)}: lower `quantity`, `test` or `clients`"
            )
        pool = generator(seed, "scenario", "deal", label).permutation(pool)
        given = wanted_test + np.arange(wanted_train) % max(rest, 1)  # goes round only with reuse
        train_ends, test_ends = np.cumsum(train[:, label]), np.cumsum(test[:, label])
        for client in range(clients):
            chosen[client][0].append(pool[given[train_ends[client] - train[client, label] : train_ends[client]]])
            chosen[client][1].append(pool[test_ends[client] - test[client, label] : test_ends[client]])
    shuffle = [generator(seed, "scenario", "order", client) for client in range(clients)]
    return [
        (rng.permutation(np.concatenate(own)), rng.permutation(np.concatenate(held)))
        for rng, (own, held) in zip(shuffle, chosen, strict=True)
    ]


def label_distances(mixes: Floats) -> Floats:
    """Return the total variation distance of every two clients that differ in their label mix alone.

    With P_i(x, y) = q_i(y) P(x | y), TV(P_i, P_j) = 1/2 sum_y |q_i(y) - q_j(y)|: the images cancel.

    >>> label_distances(np.array([[1, 2, 2, 2, 0], [0, 2, 2, 2, 1]]) / 7).round(4).tolist()
    [[0.0, 0.1429], [0.1429, 0.0]]
    """
    shares = mixes / mixes.sum(axis=1, keepdims=True)
    return np.stack(
        [total_variation(own, shares) for own in shares]
    )  # row by row: of thousands all at once take gigabytes
