"""Concept shift: the label indices of each type are permuted (Section 5.1 of the paper; Sattler et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcollab.errors import InputError, number
from fedcollab.scenarios import label
from fedcollab.scenarios.data import Images
from fedcollab.scenarios.deal import Floats, Ints
from fedcollab.scenarios.scenario import Scenario, label_shares, make_clients
from fedcollab.scenarios.sizes import PerClient, Sizes, block_types, default_sizes, per_client

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
    """Clients with the pool's label shares, whose labels are renamed by the permutation of their type.

    swapped         s, the labels that types 0 and 1 (and types 2 and 3) disagree on: 6 of 20, 4 of 10 unless given
    permutations    instead: one row a type, the new index of each label
    """
    classes = len(data.classes)
    if permutations is None:
        tables = paper_permutations(classes, usual_swaps(classes) if swapped is None else swapped)
    elif swapped is None:
        tables = check_permutations(permutations, classes)
    else:
        raise InputError("`swapped` and `permutations` must not be given together")
    types = block_types(clients, len(tables))
    sizes, held = default_sizes(data.name, SIZES, quantity, test, kinds=len(tables))
    shares = label_shares(data)
    made = make_clients(
        data,
        np.tile(shares, (len(types), 1)),
        per_client("quantity", sizes, types, least=2),
        per_client("test", held, types, least=0),
        seed=seed,
        iid=iid,
        types=types,
        labels=lambda labels, kind: tables[kind][labels],
    )
    settings = SETTINGS if data.name == "cifar-100" else PIXELS
    return Scenario(
        "concept-shift",
        made,
        tuple(types.tolist()),
        disagreement(tables[types], shares),
        {**settings, "dataset": data.name, "classes": classes},
        seed,
    )


def usual_swaps(classes: int) -> int:
    """An even number near three tenths of the labels.

    >>> usual_swaps(20), usual_swaps(10)
    (6, 4)
    """
    return 2 * round(0.15 * classes)


def paper_permutations(classes: int, swapped: int) -> Ints:
    """The new index of label y for types 0 to 3, with L = `classes` and s = `swapped`.

    Type 0: y. Type 1: s-1-y for y < s, else y. Type 2: L-1-y. Type 3: L-s+y for y < s, else L-1-y.

    >>> paper_permutations(6, 2).tolist()
    [[0, 1, 2, 3, 4, 5], [1, 0, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [4, 5, 3, 2, 1, 0]]
    """
    s = int(number("swapped", swapped, at_least=0, at_most=classes, whole=True))
    y = np.arange(classes)
    return np.stack(
        [y, np.where(y < s, s - 1 - y, y), classes - 1 - y, np.where(y < s, classes - s + y, classes - 1 - y)]
    )


def check_permutations(permutations: Sequence[Sequence[int]], classes: int) -> Ints:
    """Permutations that were given, one row a type."""
    if not isinstance(permutations, (list, tuple, np.ndarray)) or len(permutations) == 0:
        raise InputError(f"`permutations` (={permutations!r}) must be a list of rows, one a type")
    for row in permutations:
        known = isinstance(row, (list, tuple, np.ndarray)) and all(isinstance(item, (int, np.integer)) for item in row)
        if not known or sorted(row) != list(range(classes)):
            raise InputError(f"`permutations` has the row {row!r}; expected each of 0 to {classes - 1} once")
    return np.array(permutations, dtype=np.int64)


def disagreement(tables: Ints, shares: Floats) -> Floats:
    """Total variation distance of clients that name the same images differently.

    With y = p_i(c(x)), c(x) the one right class of an image, TV(P_i, P_j) = P(p_i(c) != p_j(c)): the share of labels
    that two clients do not agree on.
    """
    distances: Floats = ((tables[:, None, :] != tables[None, :, :]) * shares).sum(axis=2)
    return distances
