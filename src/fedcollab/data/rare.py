"""Categories that few rows have: a silo treats them as missing, so that no number is about the one row that has one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from fedcollab.data.client import ClientData, is_table

_known: WeakKeyDictionary[ClientData, tuple[int, ClientData]] = WeakKeyDictionary()


def without_rare(data: ClientData, least: int) -> ClientData:
    """Return a client whose text columns hold no category of fewer than `least` rows: such values are missing.

    The last answer about a client is kept with it: every message to a silo asks.

    Parameters
    ----------
    data : ClientData
        The client.
    least : int
        The fewest training rows that a category must have; 1 changes nothing.

    Returns
    -------
    ClientData
        The client; test rows have the categories that stay, and no others.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> x = pd.DataFrame({"ward": ["a", "a", "b"], "age": [50, 60, 70]})
    >>> without_rare(ClientData("north", x, np.array([0, 1, 0])), 2).x["ward"].isna().tolist()
    [False, False, True]
    """
    if least <= 1 or not is_table(data.x):
        return data
    if data not in _known or _known[data][0] != least:
        made = _without_rare(data, least)
        if made is data:  # nothing to keep alive by itself
            return data
        _known[data] = (least, made)
    return _known[data][1]


def _without_rare(data: ClientData, least: int) -> ClientData:
    """Return what `without_rare` promises, computed."""
    common = {}
    for name in data.x.columns:
        values = data.x[name]
        if values.dtype.kind in "biufmM":
            continue
        counts = values.dropna().astype(str).value_counts()
        common[name] = set(counts.index[counts >= least])

    def masked(table: Any) -> Any:
        if table is None:
            return None
        changed = {name: table[name].where(table[name].astype(str).isin(kept), None) for name, kept in common.items()}
        return table.assign(**changed)

    return replace(data, x=masked(data.x), x_test=masked(data.x_test)) if common else data
