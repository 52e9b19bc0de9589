"""Values that few rows have: a silo changes them before it sums, so that no number is about the one row that has one.

    categories of fewer rows than the limit       count as missing (`without_rare`)
    a numeric column of fewer values              counts as empty (`without_rare`)
    in a sum of products of two columns           what tells fewer rows than the limit apart from the others is changed
                                                  to what most rows have; what is very far from it, brought nearer
                                                  (`alike_in_sums`)

The last is needed since a sum of products with a column that is 1 for one row and 0 for the others is that row, and so
is the sum over all rows less those of all categories, if one row has none of them. What counts are the categories that
the silo has, not those of a schema: else two schemas would give two sums that differ by the rows of a rare one. For the
same reason sums are rounded (`rounded_sums`): two scales that differ by a hair round single values up or down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fedcollab.data.client import ClientData
from fedcollab.data.samples import is_table
from fedcollab.errors import InputError

Floats = NDArray[np.float64]
#: how many deviations a value may be from what most rows have, in a sum of products
FAR = 5.0
#: to what share of the lengths of two columns a sum of their products is rounded, up to the next power of ten
STEP = 2e-7
#: powers of ten as they are written: NumPy's own may be off in the last digit, by processor
POWERS = np.array([float(f"1e{power}") for power in range(309)])

_known: WeakKeyDictionary[ClientData, tuple[int, ClientData]] = WeakKeyDictionary()


def without_rare(data: ClientData, least: int) -> ClientData:
    """Return a client without rare values: categories of fewer than `least` rows, numeric columns of fewer values.

    The last answer about a client is kept with it: every message to a silo asks.

    Parameters
    ----------
    data : ClientData
        The client.
    least : int
        The fewest training rows that a category, or a numeric column, must have; 1 changes nothing.

    Returns
    -------
    ClientData
        The client, with rare values missing; test rows have the categories and columns that stay, and no others.

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
    common, sparse = {}, []
    for name in data.x.columns:
        values = data.x[name]
        if values.dtype.kind in "biufmM":
            if values.dtype.kind in "biuf" and 0 < values.notna().sum() < least:
                sparse.append(name)
            continue
        counts = values.dropna().astype(str).value_counts()
        common[name] = set(counts.index[counts >= least])

    def masked(table: Any) -> Any:
        if table is None:
            return None
        changed = {name: table[name].where(table[name].astype(str).isin(kept), None) for name, kept in common.items()}
        changed |= {name: np.full(len(table), np.nan) for name in sparse}
        return table.assign(**changed)

    return replace(data, x=masked(data.x), x_test=masked(data.x_test)) if common or sparse else data


def alike_in_sums(x: Floats, blocks: Sequence[Sequence[int]], codes: NDArray[np.int64], least: int) -> Floats:
    """Return rows whose products can be summed: no column tells fewer than `least` of them apart from the others.

    Parameters
    ----------
    x : array
        The rows that are summed over.
    blocks : sequence of sequence of int
        The columns of each text column: one for each category, 1 where a row has it (`Schema.blocks`).
    codes : array of int
        The category that each row has in each text column, whether the schema has it or not; -1 for none.
    least : int
        The fewest rows; 1 changes nothing.

    Returns
    -------
    array
        The rows, changed where it is needed: a category of few rows (or none of the categories) becomes the most
        frequent, a column that is the same for all but a few rows becomes the same for all, and values farther from
        most rows than `FAR` deviations are brought to there.

    Examples
    --------
    >>> x = np.array([[1.0, 0.0, 3.0], [1.0, 0.0, 4.0], [1.0, 0.0, 5.0], [0.0, 0.0, 6.0]])
    >>> alike_in_sums(x, [(0, 1)], np.array([[0], [0], [0], [-1]]), 2)[3].tolist()
    [1.0, 0.0, 6.0]
    """
    if least <= 1 or not len(x):
        return x
    x = x.copy()
    for block, column in zip(blocks, codes.T, strict=True):
        _, first, code, counts = np.unique(column, return_index=True, return_inverse=True, return_counts=True)
        most = int(counts.argmax())
        rare = np.flatnonzero((counts < least)[code.reshape(-1)])
        x[rare[:, None], block] = x[first[most], block] if counts[most] >= least else 0.0
    inside = {column for block in blocks for column in block}
    centred = x - x.mean(axis=0)
    squares = np.square(centred)
    doubtful = squares.sum(axis=0) ** 2 < 4 * least * np.square(squares).sum(axis=0)  # few rows make most of its spread
    for column in np.flatnonzero(doubtful):
        if int(column) not in inside:
            x[:, column] = _alike(x[:, column], least)
    return x


def alike_columns(x: Floats, least: int) -> Floats:
    """Return rows of numbers whose sums can be told: as `alike_in_sums`, of numeric columns that stand for themselves.

    Parameters
    ----------
    x : array
        One row a sample, or the values of one column.
    least : int
        The fewest rows; 1 changes nothing.

    Examples
    --------
    >>> alike_columns(np.array([0.0, 0.0, 0.0, 37.5]), 2).tolist()
    [0.0, 0.0, 0.0, 0.0]
    """
    if x.ndim == 1:
        return alike_columns(x[:, None], least)[:, 0]
    return alike_in_sums(x, [], np.zeros((len(x), 0), dtype=np.int64), least)


def squares_about(values: Floats, centre: Any) -> Floats:
    """Return the sums of squared deviations from centres that a server chose, one for each column.

    sum (v - c)^2 = sum (v - m)^2 + n (m - c)^2,      m the silo's own mean

    The centre comes in after the sum. Were it taken from each value first, then what a far centre rounds away of each
    value would be told, and many centres would tell how often each value is there.

    Parameters
    ----------
    values : array
        One row a sample, or the values of one column.
    centre : array
        One for each column.

    Examples
    --------
    >>> float(squares_about(np.array([1.0, 2.0, 6.0]), 0.0))
    41.0
    """
    mean = values.mean(axis=0)
    if np.shape(centre) != np.shape(mean):
        raise InputError(f"`mean` has shape {np.shape(centre)}; expected {np.shape(mean)}")
    found: Floats = np.square(values - mean).sum(axis=0) + len(values) * np.square(mean - centre)
    return found


def rounded_sums(products: Floats, least: int) -> Floats:
    """Return a matrix of sums of products rounded to `STEP` of the lengths of the two columns.

    Values are single-precision numbers: a scale that differs by less than they can tell moves some of them up and
    others not, and in exact sums the difference would be the rows that were moved.

    Parameters
    ----------
    products : array
        Z^T Z, or several of them.
    least : int
        The silo's fewest rows; 1 rounds nothing.

    Examples
    --------
    >>> rounded_sums(np.array([[4.0, 1.0 + 1e-9], [1.0 + 1e-9, 9.0]]), 10).tolist()
    [[4.0, 1.0], [1.0, 9.0]]
    """
    if least <= 1:
        return products
    lengths = np.sqrt(np.clip(np.diagonal(products, axis1=-2, axis2=-1), 0, None))
    wanted = np.maximum(STEP * lengths[..., :, None] * lengths[..., None, :], 1e-300)
    digits = -np.ceil(np.log10(wanted)).astype(np.int64)
    up, down = POWERS[np.maximum(digits, 0)], POWERS[np.maximum(-digits, 0)]
    found: Floats = np.round(products * up / down) / up * down
    return found


def _alike(values: Floats, least: int) -> Floats:
    """Return the values of a column as `alike_in_sums` changes them."""
    distinct, counts = np.unique(values, return_counts=True)
    most = counts.argmax()
    centre = distinct[most] if 2 * counts[most] > len(values) else np.median(values)
    away = np.abs(values - centre)
    if (away > 0).sum() < least:
        return np.full_like(values, centre)
    reach = FAR * 1.4826 * float(np.median(away[away > 0]))
    clipped: Floats = np.clip(values, centre - reach, centre + reach)
    return clipped
