"""Who trains with whom, as `train` was asked: given coalitions checked, and models shared under own weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedcollab.errors import InputError
from fedcollab.training.algorithms.own_weights import share_rows
from fedcollab.training.rounds import Grouping


def weighted_grouping(weights: ArrayLike | None, rows: int, names: Sequence[str], of: Sequence[str]) -> Grouping:
    """Return clients grouped by the model that they share, with what each client weighs in each of the models.

    Parameters
    ----------
    weights : array_like or None
        As in `fedcollab.train`.
    rows : int
        The most models.
    names : sequence of str
        The clients that train.
    of : sequence of str
        The clients of the weights' rows and columns; those that do not train are left out.

    Raises
    ------
    InputError
        If there are no weights, or they lack a client.
    """
    if weights is None:
        raise InputError("`algorithm` (='own-weights') needs `weights`, or an advice that has them")
    missing = [name for name in names if name not in of]
    if missing:
        raise InputError(f"`weights` lack the client {missing[0]!r}")
    given = np.asarray(weights, dtype=np.float64)
    if given.shape == (len(of), len(of)) and list(of) != sorted(names):
        places = [list(of).index(name) for name in sorted(names)]
        given = given[np.ix_(places, places)]
        given = given / given.sum(axis=1, keepdims=True)
    groups, shared = share_rows(given, sorted(names), rows)
    return Grouping(groups, shared)


def checked_coalitions(
    coalitions: Any, names: Sequence[str], left_out: Mapping[str, str], *, alone: bool
) -> list[list[str]]:
    """Return coalitions as lists of names, without absent clients, after checking that they partition the clients.

    Parameters
    ----------
    coalitions : list of lists of str, str or object
        As in `fedcollab.train`.
    names : sequence of str
        The clients that train.
    left_out : mapping
        The clients that are absent, and why.
    alone : bool
        Whether the algorithm trains each client alone, whatever the coalitions.

    Raises
    ------
    InputError
        If the coalitions overlap, or lack a client.
    """
    given = getattr(coalitions, "coalitions", coalitions)
    if alone or (isinstance(given, str) and given == "local"):
        return [[name] for name in names]
    if isinstance(given, str):
        if given != "global":
            raise InputError(f"`coalitions` (={given!r}) must be lists of client names, 'local' or 'global'")
        return [list(names)]
    try:
        lists = [[name for name in members if name not in left_out] for members in given]
    except TypeError:
        raise InputError(f"`coalitions` (={given!r}) must be lists of client names, 'local' or 'global'") from None
    flat = [name for members in lists for name in members]
    unknown = [name for name in flat if name not in names]
    if unknown:
        raise InputError(f"`coalitions` names {unknown[0]!r}, which is not a client; clients: {', '.join(names)}")
    twice = [name for name in flat if flat.count(name) > 1]
    if twice:
        raise InputError(f"`coalitions` has the client {twice[0]!r} twice; coalitions must not overlap")
    missing = [name for name in names if name not in flat]
    if missing:
        raise InputError(f"`coalitions` lacks the client {missing[0]!r}; every client must be in one")
    return [members for members in lists if members]
