"""What separates the clients, and whether it matters: columns in which they differ, and whether the rule does too.

How far a column separates clients is measured from the clients' own summaries (means, spreads, shares of categories)
that agreeing on a schema needed anyway. Whether it matters is asked of the proxies (`advice.proxy`): the held-out
squared error of one model for everyone with own intercepts is compared with that of the same model in which every
client's coefficients of this column are its own. Where own coefficients do not help, the clients differ in the column
and follow one rule all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcollab.advice.proxy import MOST_COLUMNS, Sums, coalition_weights
from fedcollab.federation import Federation

#: how many columns are named, how far apart the clients must be in one, and how much own coefficients must help
MOST, APART, HELPS = 5, 0.5, 0.005


def separating_columns(
    federation: Federation, sums: Sums | None, quantities: Mapping[str, int]
) -> list[Mapping[str, Any]]:
    """Return the columns in which clients differ most, and whether own coefficients of each help.

    Parameters
    ----------
    federation : Federation
        The clients.
    sums : Sums or None
        What the clients answered; None: nothing is known.
    quantities : mapping of int
        Samples by client.

    Returns
    -------
    list of mappings
        `column`, `apart` (the spread of the clients' means over the spread within clients), `helps` (the share by
        which own coefficients lower the held-out error) and `matters`.
    """
    columns = federation.schema.columns
    if sums is None or columns is None or len(sums.names) < 2:
        return []
    width = sums.products[0].shape[-1] - 1
    places = _places(federation)
    if width > MOST_COLUMNS or sum(map(len, places.values())) != width:
        return []
    rows = np.array([part.sum() for part in sums.rows])
    total = np.stack([part.sum(axis=0) for part in sums.products])
    means = total[:, -1, :-1] / rows[:, None]
    within = np.stack([np.diag(part)[:-1] for part in total]) / rows[:, None] - means**2
    apart = means.std(axis=0) / np.sqrt(np.maximum(within.mean(axis=0), 1e-6))
    differ = {name: float(apart[list(where)].max()) for name, where in places.items() if where}
    named = sorted((name for name, value in differ.items() if value >= APART), key=lambda name: -differ[name])[:MOST]
    if not named:
        return []
    known = {name: quantities[name] for name in sums.names}
    weights = coalition_weights([list(known)], known)
    base = float(sums.held_out(weights, own=(-1,)).mean())
    found: list[Mapping[str, Any]] = []
    for name in named:
        own = (-1, *(position - width - 1 for position in places[name]))
        helps = 1 - float(sums.held_out(weights, own=own).mean()) / base if base > 0 else 0.0
        found.append({"column": name, "apart": differ[name], "helps": helps, "matters": helps > HELPS})
    return found


def _places(federation: Federation) -> dict[str, list[int]]:
    """Return the positions of each column among the model's inputs."""
    schema, places, start = federation.schema, {}, 0
    for column in schema.columns or ():
        width = (1 if column.categories is None else len(column.categories)) + schema.missing_indicators
        places[column.name] = list(range(start, start + width))
        start += width
    return places
