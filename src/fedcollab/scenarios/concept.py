"""Concept shift: the label indices of each type are permuted (Section 5.1 of the paper; Sattler et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcollab.errors import InputError, number
from fedcollab.scenarios import label
from fedcollab.scenarios.data import Images
from fedcollab.scenarios.deal import Floats, Ints
from fedcollab.scenarios.scenario import Scenario, label_shares, make_scenario
from fedcollab.scenarios.sizes import PerClient, Sizes, block_types, default_sizes

PIXELS = {**label.SETTINGS, "C": 8.0}
SETTINGS = {**PIXELS, "model": "resnet18", "lr": 0.001, "discriminator_lr": 0.05, "encoder": "efficientnet-lite0"}

SIZES: dict[str, Sizes] = {  # small clients keep e^-3 of their training samples, rounded per label
    "cifar-100": ((2500, 2500, 120, 120), 500),
    "cifar-10": ((2500, 2500, 120, 120), 500),
    "fashion-mnist": ((2100, 2100, 120, 120), 350),
    "digits": ((100, 100, 20, 20), 20),
}


def concept_shift(
    data: Images,
    *,
    seed: int = 0,
    iid: bool = False,
    clients: int = 20,
    swapped: int | None = None,
    permutations: Sequence[Sequence[int]] | None = None,
    quantity: PerClient | None = None,
    test: PerClient | None = None,
) -> Scenario:
    """Make clients with the pool's label shares, whose labels are renamed by the permutation of their type.

    Parameters
    ----------
    data, seed, iid, clients, quantity, test
        As in `label.label_shift`, the mix being the pool's label shares.
    swapped : int, optional
        s, the labels that types 0 and 1 (and types 2 and 3) disagree on: see `paper_permutations`.
    permutations : sequence of rows, optional
        Instead of `swapped`: the new index of each label, one row a type.
    """
    classes = len(data.classes)
    if permutations is None:
        tables = paper_permutations(classes, swapped)
    elif swapped is None:
        tables = check_permutations(permutations, classes)
    else:
        raise InputError("`swapped` and `permutations` must not be given together")
    types = block_types(clients, len(tables))
    sizes, held = default_sizes(data.name, SIZES, quantity, test, kinds=len(tables))
    shares = label_shares(data)
    return make_scenario(
        "concept-shift",
        data,
        np.tile(shares, (len(types), 1)),
        types,
        quantity=sizes,
        test=held,
        seed=seed,
        iid=iid,
        truth=disagreement(tables[types], shares),
        settings=SETTINGS if data.name == "cifar-100" else PIXELS,
        labels=lambda labels, kind: tables[kind][labels],
    )


def paper_permutations(classes: int, swapped: int | None = None) -> Ints:
    """Return the new index of each label for the paper's four types of concept shift.

    With L = `classes` and s = `swapped`, label y becomes, for type 0: y. Type 1: s-1-y for y < s, else y. Type 2:
    L-1-y. Type 3: L-s+y for y < s, else L-1-y.

    Parameters
    ----------
    classes : int
        How many labels the data set has.
    swapped : int, optional
        The labels that types 0 and 1 (and types 2 and 3) disagree on; by default an even number near three tenths of
        the labels, as in the paper (6 of 20).

    Returns
    -------
    array of int of shape (4, classes)

    Raises
    ------
    InputError
        If `swapped` is not a whole number from 0 to `classes`.

    Examples
    --------
    >>> paper_permutations(6, 2).tolist()
    [[0, 1, 2, 3, 4, 5], [1, 0, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [4, 5, 3, 2, 1, 0]]
    >>> [int((paper_permutations(classes)[0] != paper_permutations(classes)[1]).sum()) for classes in (20, 10)]
    [6, 4]
    """
    usual = 2 * round(0.15 * classes)
    s = int(number("swapped", usual if swapped is None else swapped, at_least=0, at_most=classes, whole=True))
    y = np.arange(classes)
    return np.stack(
        [y, np.where(y < s, s - 1 - y, y), classes - 1 - y, np.where(y < s, classes - s + y, classes - 1 - y)]
    )


def check_permutations(permutations: Sequence[Sequence[int]], classes: int) -> Ints:
    """Return the permutations that were given as an array, one row a type; a bad row raises `InputError`."""
    if not isinstance(permutations, (list, tuple, np.ndarray)) or len(permutations) == 0:
        raise InputError(f"`permutations` (={permutations!r}) must be a list of rows, one a type")
    for row in permutations:
        known = isinstance(row, (list, tuple, np.ndarray)) and all(isinstance(item, (int, np.integer)) for item in row)
        if not known or sorted(row) != list(range(classes)):
            raise InputError(f"`permutations` has the row {row!r}; expected each of 0 to {classes - 1} once")
    return np.array(permutations, dtype=np.int64)


def disagreement(tables: Ints, shares: Floats) -> Floats:
    """Return the total variation distances of clients that name the same images differently.

    With y = p_i(c(x)), c(x) the one right class of an image, TV(P_i, P_j) = P(p_i(c) != p_j(c)): the share of labels
    that two clients do not agree on.
    """
    return np.stack([((own != tables) * shares).sum(axis=1) for own in tables])  # row by row, as `label_distances`
