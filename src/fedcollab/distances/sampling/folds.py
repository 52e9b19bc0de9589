"""How a client divides its own samples: random folds and nested training sets, the same whoever the partner is.

A repeat is one random order of the client's samples, cut into folds. With fold f held out, the training set of size m
is the first m samples that follow the fold in that order. So a pair's estimate depends on the two clients, the seed and
the sizes alone, never on who else takes part. Folds are random where label counts were drawn: held-out samples of a
stratified fold remember what was left for training, which biases small clients. Where label counts were set
(`resample`) it is the random fold that remembers; then every client deals its samples to the folds label by label.
Samples of one group (one patient) are in one fold; folds are then of unequal size, and a training set that has fewer
samples than the others takes its first ones twice.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedcollab import seeds
from fedcollab.data.split import fold_of
from fedcollab.distances.sampling.resample import SET
from fedcollab.errors import InputError

Ints = NDArray[np.int64]


def largest(quantity: int, folds: int) -> int:
    """Return the size of the largest training set that every fold of a client leaves.

    Parameters
    ----------
    quantity : int
        The client's samples.
    folds : int
        How many folds they are cut into.

    Returns
    -------
    int
        Samples that are left when the largest fold is held out.

    Examples
    --------
    >>> largest(14, 5), largest(2, 5)
    (11, 1)
    """
    return quantity - -(-quantity // folds)


def order(seed: int, name: str, repeat: int, y: Ints, folds: int, label_counts: str) -> Ints:
    """Return the random order of a client's samples in one repeat; `cut` cuts it into folds.

    Parameters
    ----------
    seed : int
        The order is drawn from it.
    name : str
        The client, as its draws know it (`Silo.lot`).
    repeat : int
        The number of the repeat.
    y : array of int
        The client's labels.
    folds : int
        How many folds the order will be cut into.
    label_counts : str
        "drawn": any order; "set": every fold gets the same share of every label.

    Examples
    --------
    With label counts that were set, clients with the same counts have the same in every fold:

    >>> np.sort(order(0, "a", 0, np.array([0, 1, 0, 1, 0, 1]), 3, "set").reshape(3, 2) % 2)
    array([[0, 1],
           [0, 1],
           [0, 1]])
    """
    draw = seeds.generator(seed, "folds", name, repeat)
    drawn: Ints = draw.permutation(len(y))
    if label_counts != SET:
        return drawn
    dealt = drawn[np.argsort(np.asarray(y)[drawn], kind="stable")]
    return np.concatenate([draw.permutation(dealt[fold::folds]) for fold in range(folds)])


def cut(
    seed: int, name: str, repeat: int, y: Ints, folds: int, label_counts: str, groups: Ints | None = None
) -> list[Ints]:
    """Return a client's samples in one repeat, fold by fold, each in random order.

    Parameters
    ----------
    seed, name, repeat, y, folds, label_counts
        As in `order`.
    groups : array of int, optional
        The group of each sample; a group is in one fold, whole.

    Returns
    -------
    list of array of int
        The positions of the samples of each fold; folds are empty if there are fewer samples, or groups, than folds.

    Raises
    ------
    InputError
        If all samples are of one group.
    """
    if groups is None:
        return np.array_split(order(seed, name, repeat, y, folds, label_counts), folds)
    if len(np.unique(groups)) < 2:
        raise InputError("all samples of a client are of one group; at least 2 groups are needed to hold one out")
    draw = seeds.generator(seed, "folds", name, repeat)
    fold = fold_of(y if label_counts == SET else np.zeros(len(y)), folds, draw, groups)
    return [draw.permutation(np.flatnonzero(fold == part)) for part in range(folds)]


def split(parts: list[Ints], fold: int, size: int) -> tuple[Ints, Ints]:
    """Return a training set and the held-out fold.

    Parameters
    ----------
    parts : list of array of int
        The samples fold by fold, from `cut`.
    fold : int
        The fold that is held out.
    size : int
        Samples to train on; where groups leave fewer, the first ones are taken twice.

    Returns
    -------
    training, held_out : array of int
        The samples of each; `held_out` may be empty if there are fewer samples than folds.

    Examples
    --------
    >>> [part.tolist() for part in split(np.array_split(np.arange(7), 3), 1, 4)]
    [[5, 6, 0, 1], [3, 4]]
    """
    return np.resize(np.concatenate([*parts[fold + 1 :], *parts[:fold]]), size), parts[fold]


def smallest(parts: list[Ints]) -> int:
    """Return the size of the smallest fold that has any sample."""
    return min((len(part) for part in parts if len(part)), default=0)
