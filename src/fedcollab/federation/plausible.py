"""What a client's description of its data can be: checked before anything is made of it, so that a lie harms its liar.

A reply is checked by itself (`impossible`), against the client's other replies (`contradiction`) and, where there are
three clients or more, against the others (`far_off`): scaling is made of all clients' sums, so that one with absurd
values would squeeze the features of everybody else into nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: the largest absolute value of a feature
LARGEST = 1e18
#: a client's mean or deviation of a column may be so many times as large as that of every other client (and as 1)
APART = 1e4
#: what rounding may add to a sum
ROUNDING = 1e-6


def impossible(reply: Mapping[str, Any]) -> str | None:
    """Return what no data can be described by, or None.

    Parameters
    ----------
    reply : mapping
        A client's reply to `describe`, of the declared types.

    Returns
    -------
    str or None
        What is wrong, for people.
    """
    labels = [str(label) for label in reply["labels"]]
    if len(set(labels)) != len(labels):
        return "`labels` has a label twice"
    if len(labels) > reply["quantity"] + reply["test_quantity"]:
        return f"`labels` has {len(labels)} labels; there are {reply['quantity'] + reply['test_quantity']} samples"
    counts: Any = reply["quantity"]
    target = [counts] if reply.get("numeric") else []  # whose sum comes last
    columns = len(reply["sum"]) - len(target)
    if reply["table"]:
        counts = reply["present"]
        if (counts < 0).any() or (counts > reply["quantity"]).any():
            return "`present` has columns with more values than there are samples, or fewer than none"
        for kind, categories, count in zip(reply["kinds"], reply["categories"], counts.tolist(), strict=True):
            if (kind == "empty") != (count == 0):
                return "`kinds` and `present` contradict each other"
            if (kind == "categorical") != bool(categories) or len(set(categories)) != len(categories):
                return "`kinds` and `categories` contradict each other"
            if len(categories) > count:
                return "`categories` has more texts than the column has values"
        numeric = np.array([kind == "numeric" for kind in reply["kinds"]])
        if reply["sum"][:columns][~numeric].any():
            return "`sum` has a sum of a column without numbers"
    else:
        each = counts * float(np.prod([float(side) for side in reply["shape"]])) / max(1, columns)
        counts = np.full(columns, each)
    if (np.abs(reply["sum"]) > LARGEST * np.append(counts, target).astype(np.float64)).any():
        return f"`sum` is of values beyond {LARGEST:g}"
    return None


def contradiction(described: Mapping[str, Any], prepared: Mapping[str, Any]) -> str | None:
    """Return where a client's reply to `prepare` contradicts its description, or None.

    Parameters
    ----------
    described, prepared : mapping
        The client's replies.
    """
    for key in ("quantity", "test_quantity"):
        if prepared[key] != described[key]:
            return f"`{key}` was {described[key]} before and is {prepared[key]} now"
    return None


def far_off(means: Mapping[str, Floats], variances: Mapping[str, Floats] | None = None) -> dict[str, str]:
    """Return the clients whose values are `APART` times as large, or as widely spread, as those of every other client.

    Parameters
    ----------
    means : mapping
        The mean of every column, by client.
    variances : mapping, optional
        The mean squared deviation of every column from the common mean, by client.

    Returns
    -------
    dict
        Why each of them is left out; nobody of fewer than three clients.

    Examples
    --------
    >>> far_off({"a": np.array([2.0]), "b": np.array([3.0]), "c": np.array([1e9])})
    {'c': 'column 1 has the mean 1e+09, and at most 3 at every other client: other units, or not true'}
    """
    found: dict[str, str] = {}
    if len(means) < 3:
        return found
    kinds = [("mean", means)]
    if variances is not None:
        kinds.append(("deviation", {name: np.sqrt(np.maximum(value, 0)) for name, value in variances.items()}))
    for word, values in kinds:
        names = sorted(values)
        table = np.abs(np.stack([values[name] for name in names]))
        ordered = np.sort(table, axis=0)
        for row, name in enumerate(names):
            others = np.maximum(np.where(table[row] == ordered[-1], ordered[-2], ordered[-1]), 1.0)
            beyond = table[row] > APART * others
            if beyond.any():
                place = int(beyond.argmax())
                found.setdefault(
                    name,
                    f"column {place + 1} has the {word} {table[row, place]:.3g}, and at most {others[place]:.3g} at "
                    "every other client: other units, or not true",
                )
    return found


def too_narrow(mean: Floats, own: Floats, count: Floats, squares: Floats) -> bool:
    """Return whether squared deviations from a mean are fewer than the client's own mean implies.

    By Jensen's inequality, the sum of (x - mean)^2 over n values whose own mean is m is n (m - mean)^2 at least.

    Parameters
    ----------
    mean : array
        The mean that deviations are from.
    own : array
        The client's own mean, as it said before.
    count : array
        How many values it has.
    squares : array
        The squared deviations, as it says now.
    """
    least = count * (own - mean) ** 2
    return bool((squares < least * (1 - 1e-3) - ROUNDING * count * np.maximum(1.0, mean**2)).any())
