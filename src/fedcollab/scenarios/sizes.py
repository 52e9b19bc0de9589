"""How many samples: one number for all clients, one per type or one per client; and each data set's usual sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcollab.errors import InputError, number
from fedcollab.scenarios.deal import Ints

PerClient = int | Sequence[int]  # one number for all clients, one per type, or one per client
#: the most clients of a scenario, and the most samples of a client
MOST_CLIENTS = 10_000
MOST_SAMPLES = 100_000_000
Sizes = tuple[tuple[int, ...], PerClient]  # training samples per type, test samples


def block_types(clients: int, kinds: int) -> Ints:
    """Return the type of each client: equal blocks in order, as nearly as the numbers allow.

    >>> block_types(5, 2).tolist()
    [0, 0, 0, 1, 1]
    """
    count = int(number("clients", clients, at_least=kinds, at_most=MOST_CLIENTS, whole=True))
    return np.arange(count) * kinds // count


def per_client(argument: str, value: PerClient, types: Ints, *, least: int) -> Ints:
    """Return one whole number for each client.

    Parameters
    ----------
    argument : str
        What the user calls the value, for error messages.
    value : int or sequence of int
        One number for all clients, one per type or one per client.
    types : array of int
        The type of each client.
    least : int
        The smallest number that is allowed.

    Raises
    ------
    InputError
        If there are as many numbers as neither clients nor types, or one is too small.
    """
    kinds = int(types.max()) + 1
    values = list(value) if isinstance(value, (list, tuple, np.ndarray)) else [value]
    checked = np.array(
        [int(number(argument, item, at_least=least, at_most=MOST_SAMPLES, whole=True)) for item in values],
        dtype=np.int64,
    )
    if len(checked) == 1:
        return np.repeat(checked, len(types))
    if len(checked) == len(types):
        return checked
    if len(checked) == kinds:
        return checked[types]
    raise InputError(
        f"`{argument}` (={list(values)}) must be one number, one per type ({kinds}) or one per client ({len(types)})"
    )


def default_sizes(
    dataset: str,
    known: dict[str, Sizes],
    quantity: PerClient | None,
    test: PerClient | None,
    *,
    kinds: int,
) -> tuple[PerClient, PerClient]:
    """Return the training and test samples that were given, or else the data set's usual ones.

    Parameters
    ----------
    dataset : str
        Name of the data set.
    known : dict
        The usual sizes by data set.
    quantity, test : int or sequence of int or None
        What the user gave.
    kinds : int
        How many types of clients there are.

    Returns
    -------
    quantity, test
    """
    if quantity is not None and test is not None:
        return quantity, test
    if dataset not in known or (quantity is None and kinds != len(known[dataset][0])):
        missing = " and ".join(f"`{name}`" for name, value in (("quantity", quantity), ("test", test)) if value is None)
        raise InputError(f"{missing} must be given for {kinds} types on `{dataset}`: samples per client")
    usual = known[dataset]
    return (usual[0] if quantity is None else quantity), (usual[1] if test is None else test)
