"""Which samples of a client are its test split, where it brings none of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab import seeds
from fedcollab.data.client import ClientData
from fedcollab.errors import InputError


def with_test(data: ClientData, share: float, seed: int) -> ClientData:
    """Return the client with a test split: its own, or a stratified hold-out drawn from (seed, client name).

    Parameters
    ----------
    data : ClientData
        The client.
    share : float
        The share of its samples that is held out, if it has no test split.
    seed : int
        The seed that the hold-out is drawn from.

    Returns
    -------
    ClientData
        The client with `x_test` and `y_test`.

    Raises
    ------
    InputError
        If the client has too few samples to hold any out.
    """
    if data.y_test is not None:
        return data
    chosen = held_out(data, share, seed)
    if not 0 < chosen.sum() < len(data.y) - 1:
        raise InputError(
            f"client `{data.name}` has {len(data.y)} samples, too few to hold out a test split; at least 4 are needed"
        )
    x, x_test = (data.x[mask] for mask in (~chosen, chosen))
    return ClientData(data.name, x, data.y[~chosen], x_test, data.y[chosen])


def held_out(data: ClientData, share: float, seed: int) -> NDArray[np.bool_]:
    """Return a mask of the samples that a client without a test split holds out.

    Parameters
    ----------
    data : ClientData
        The client.
    share : float
        The share of its samples that is held out.
    seed : int
        The seed that the hold-out is drawn from.

    Returns
    -------
    array of bool
        True for each sample that is held out.
    """
    return stratified(data.y, share, seeds.generator(seed, "hold-out", data.name))


def stratified(y: NDArray[Any], share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return a mask of a share of the samples, with every label's share as near to it as whole samples allow.

    Each label gets its quota rounded down; the samples still missing go to the largest remainders, ties at random.

    Parameters
    ----------
    y : array
        The label of each sample.
    share : float
        The share of the samples to choose; at least one is chosen.
    rng : numpy.random.Generator
        Draws the samples.

    Returns
    -------
    array of bool
        True for each sample that is chosen.
    """
    labels, index, counts = np.unique(y, return_inverse=True, return_counts=True)
    quota = counts * share
    take = np.floor(quota).astype(int)
    order = np.lexsort((rng.random(len(labels)), -(quota - take)))
    take[order[: max(round(len(y) * share), 1) - take.sum()]] += 1
    mask = np.zeros(len(y), dtype=bool)
    for label in range(len(labels)):
        mask[rng.permutation(np.flatnonzero(index == label))[: take[label]]] = True
    return mask


def fold_of(y: NDArray[Any], folds: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the fold of each sample: folds of like size, with every label spread over them as evenly as it goes.

    Parameters
    ----------
    y : array
        The label of each sample.
    folds : int
        How many folds.
    rng : numpy.random.Generator
        Draws the samples.

    Returns
    -------
    array of int
        A number from 0 to `folds` - 1 for each sample.
    """
    order = rng.permutation(len(y))
    order = order[np.argsort(np.asarray(y)[order], kind="stable")]
    fold = np.empty(len(y), dtype=np.int64)
    fold[order] = (np.arange(len(y)) + rng.integers(folds)) % folds
    return fold
