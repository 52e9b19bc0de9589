"""Which samples of a client are its test split, where it brings none of its own; and groups that stay together.

Samples of one group (one patient, one household) are nearly copies of each other. Were some of them trained on and
others tested on, a model that remembers would look like one that has learnt.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab import seeds
from fedcollab.data.client import ClientData
from fedcollab.data.samples import is_numeric
from fedcollab.errors import InputError

#: how many samples with like values of a numeric target are spread evenly, in the place of those of one label
STRATUM = 10


def with_test(data: ClientData, share: float, seed: int, lot: str | None = None) -> ClientData:
    """Return the client with a test split: its own, or a stratified hold-out drawn from (seed, client name).

    Parameters
    ----------
    data : ClientData
        The client.
    share : float
        The share of its samples that is held out, if it has no test split.
    seed : int
        The seed that the hold-out is drawn from.
    lot : str, optional
        What the hold-out is drawn from beside the seed (`Silo.lot`); the client's name if it is not given.

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
    chosen = held_out(data, share, seed, lot)
    if not 0 < chosen.sum() < len(data.y) - 1:
        raise InputError(
            f"client `{data.name}` has {len(data.y)} samples, too few to hold out a test split; at least 4 are needed"
            + ("" if data.groups is None else ", of at least 2 groups")
        )
    x, x_test = (data.x[mask] for mask in (~chosen, chosen))
    groups = None if data.groups is None else data.groups[~chosen]
    return ClientData(data.name, x, data.y[~chosen], x_test, data.y[chosen], groups)


def held_out(data: ClientData, share: float, seed: int, lot: str | None = None) -> NDArray[np.bool_]:
    """Return a mask of the samples that a client without a test split holds out; a group is held out whole or not.

    Parameters
    ----------
    data : ClientData
        The client.
    share : float
        The share of its samples that is held out.
    seed : int
        The seed that the hold-out is drawn from.
    lot : str, optional
        As in `with_test`.
    """
    return stratified(data.y, share, seeds.generator(seed, "hold-out", data.name if lot is None else lot), data.groups)


def stratified(
    y: NDArray[Any], share: float, rng: np.random.Generator, groups: NDArray[np.int64] | None = None
) -> NDArray[np.bool_]:
    """Return a mask of a share of the samples, with every label's share as near to it as whole samples allow.

    Each label gets its quota rounded down; the samples still missing go to the largest remainders, ties at random.
    With groups, whole groups are chosen, so that the shares are met less exactly.

    Parameters
    ----------
    y : array
        The label of each sample.
    share : float
        The share of the samples to choose; at least one is chosen.
    rng : numpy.random.Generator
        Draws the samples.
    groups : array of int, optional
        The group of each sample; a group is chosen whole or not at all.
    """
    y = strata(y)
    if groups is not None:
        return _stratified_groups(groups, y, share, rng)
    labels, index, counts = np.unique(y, return_inverse=True, return_counts=True)
    quota = counts * share
    take = np.floor(quota).astype(int)
    order = np.lexsort((rng.random(len(labels)), -(quota - take)))
    take[order[: max(round(len(y) * share), 1) - take.sum()]] += 1
    mask = np.zeros(len(y), dtype=bool)
    for label in range(len(labels)):
        mask[rng.permutation(np.flatnonzero(index == label))[: take[label]]] = True
    return mask


def strata(y: NDArray[Any]) -> NDArray[Any]:
    """Return what samples are spread evenly by: their labels, or for a numeric target which ten of its values are near.

    Parameters
    ----------
    y : array
        The label, or the numeric target, of each sample.

    Examples
    --------
    >>> strata(np.array([3, 1, 1])).tolist(), strata(np.arange(20)[::-1] / 8).tolist() == [1] * 10 + [0] * 10
    ([3, 1, 1], True)
    """
    if not is_numeric(y) or y.min() == y.max():
        return y
    places: NDArray[np.int64] = np.argsort(np.argsort(y, kind="stable"), kind="stable") // STRATUM
    return places


def fold_of(
    y: NDArray[Any], folds: int, rng: np.random.Generator, groups: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return the fold of each sample: folds of like size, with every label spread over them as evenly as it goes.

    With groups, every group is in one fold, and folds are as alike as whole groups allow: groups are dealt out in
    random order and the largest first, each to the fold in which the counts of its labels are lowest.

    Parameters
    ----------
    y : array
        The label of each sample; all alike: folds are made alike by their sizes alone.
    folds : int
        How many folds.
    rng : numpy.random.Generator
        Draws the samples.
    groups : array of int, optional
        The group of each sample.

    Returns
    -------
    array of int
        A number from 0 to `folds` - 1 for each sample; some folds stay empty if there are fewer groups than folds.

    Examples
    --------
    >>> fold_of(np.zeros(6), 3, np.random.default_rng(0), np.array([7, 7, 7, 8, 9, 9]))
    array([0, 0, 0, 2, 1, 1])
    """
    y = strata(np.asarray(y))
    if groups is not None:
        return _fold_groups(groups, y, folds, rng)
    order = rng.permutation(len(y))
    order = order[np.argsort(np.asarray(y)[order], kind="stable")]
    fold = np.empty(len(y), dtype=np.int64)
    fold[order] = (np.arange(len(y)) + rng.integers(folds)) % folds
    return fold


def _fold_groups(groups: NDArray[Any], y: NDArray[Any], folds: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the fold of each sample, the same for all samples of a group."""
    members = np.unique(groups, return_inverse=True)[1].reshape(-1)
    counts = _counts(members, np.unique(y, return_inverse=True)[1].reshape(-1))
    weight = 1 / counts.sum(axis=0)  # a rare label counts as much as a common one
    held = np.zeros((folds, counts.shape[1]))
    fold = np.zeros(len(counts), dtype=np.int64)
    for group in _largest_first(counts, rng):
        after = ((held + counts[group]) ** 2 * weight).sum(axis=1) - (held**2 * weight).sum(axis=1)
        best = np.flatnonzero(after <= after.min() + 1e-12)
        fold[group] = best[int(np.argmin(held[best].sum(axis=1)))]
        held[fold[group]] += counts[group]
    return fold[members]


def _stratified_groups(
    groups: NDArray[np.int64], y: NDArray[Any], share: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Return a mask of whole groups with about this share of the samples of every label.

    Groups are gone through in random order, the largest first; one is taken if that brings the counts of labels nearer
    to the share that is wanted. At least one is taken.
    """
    members = np.unique(groups, return_inverse=True)[1].reshape(-1)
    counts = _counts(members, np.unique(y, return_inverse=True)[1].reshape(-1))
    wanted, weight = share * counts.sum(axis=0), 1 / counts.sum(axis=0)
    taken, chosen = np.zeros(counts.shape[1]), np.zeros(len(counts), dtype=bool)
    order = _largest_first(counts, rng)
    for group in order:
        now, then = (((wanted - held) ** 2 * weight).sum() for held in (taken, taken + counts[group]))
        if then < now:
            chosen[group] = True
            taken += counts[group]
    if not chosen.any():
        chosen[order[-1]] = True
    return chosen[members]


def _counts(members: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many samples of each label every group has."""
    counts = np.zeros((int(members.max()) + 1, int(labels.max()) + 1), dtype=np.int64)
    np.add.at(counts, (members, labels), 1)
    return counts


def _largest_first(counts: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the groups in descending order of size, equal ones in random order."""
    order: NDArray[np.int64] = np.lexsort((rng.random(len(counts)), -counts.sum(axis=1)))
    return order
