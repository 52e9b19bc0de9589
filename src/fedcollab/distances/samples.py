"""What a client's samples look like to a method that tells clients apart: a row of numbers, and a label.

    classes            x,                            the label is the class
    numeric target     (x, sqrt(D) t, t x),          the label is 0 for all;  t = y, centred and scaled, within +-2.5

A linear function of such a row is a linear function of the D features whose weights and offset depend on the class, or
linearly on the target: w(y) . x + b(y). With the factor sqrt(D) the target alone counts as much as all features
together, as a label does. Far values of the target count as 2.5 deviations: products with them would drown all others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.data.schema import Schema
from fedcollab.wire.silo import Silo

#: how many deviations a numeric target may be from the mean
FAR = 2.5


def rows(silo: Silo, target: bool = False) -> NDArray[np.float32]:
    """Return the client's training samples, one row each.

    Parameters
    ----------
    silo : Silo
        The client.
    target : bool
        Whether a numeric target is part of the row; it is not where there are classes.
    """
    return lift(plain(silo, target)) if target else silo.features


def plain(silo: Silo, target: bool) -> NDArray[np.float32]:
    """Return the client's training features, one row a sample; with `target`, t is the last column."""
    if not target:
        return silo.features
    return np.column_stack([silo.features, np.clip(silo.arrays.y, -FAR, FAR)])


def lift(x: NDArray[Any]) -> NDArray[Any]:
    """Return (x, sqrt(D) t, t x) of rows (x, t).

    Examples
    --------
    >>> lift(np.array([[3.0, 2.0]]))
    array([[3., 2., 6.]])
    """
    features, t = x[:, :-1], x[:, -1:]
    weight = x.dtype.type(np.sqrt(features.shape[1]))
    return np.concatenate([features, weight * t, t * features], axis=1)


def width(schema: Schema, target: bool) -> int:
    """Return how many numbers a row of `rows` has, by whether a numeric target is part of it (`target`)."""
    return 2 * schema.width + 1 if target else schema.width


def labels(silo: Silo) -> NDArray[np.int64]:
    """Return the class of each training sample; 0 for all where the target is numeric."""
    y = silo.arrays.y
    return y if y.dtype.kind == "i" else np.zeros(len(y), dtype=np.int64)
