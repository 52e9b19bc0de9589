"""What one client says about one column of its table: counts and moments over all its training rows, never a value.

A number that would be made of fewer rows than the silo's limit is left out (None), and so is a category that fewer rows
have. No minimum, maximum or median is ever computed: each is the value of one row.

The skill of a column is how well it alone predicts the label. Each row's label is guessed by the majority of the other
rows with the same value; where there is none, by the rows with the nearest value.

    skill = 1 - errors of the guess / errors of always guessing the commonest label
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from fedcollab.parsing import Finite
from fedcollab.silo.rounding import summable
from fedcollab.wire.fields import MOST, MOST_SAMPLES, Quantity, Text
from fedcollab.wire.silo import Silo

#: the most categories that a column may have, and whole numbers with at most that many values count as categories
CATEGORIES, CODES = 100, 20
#: significant digits of a moment that is sent
DIGITS = 4

Count = Annotated[int, Meta(ge=0, le=MOST)]
Kind = Literal["numeric", "text", "date", "empty"]

_DATE = re.compile(
    r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4})"
    r"([T ]\d{1,2}:\d{2}.*)?\s*"
)


class ColumnProfile(TypedDict):
    """What a client says about one column.

    The fields: `present` values and how many of them are `distinct`; whether all are `whole` numbers, are `monotone`
    from row to row, look like `dates`, or are `long_text`; mean and deviation of the values and of the logarithms of
    their sizes; the rows of each category; the `skill` of the column (see the module).
    """

    name: Text
    kind: Kind
    present: Count
    distinct: Count
    whole: bool
    monotone: bool
    dates: bool
    long_text: bool
    mean: Finite | None
    std: Finite | None
    log_mean: Finite | None
    log_std: Finite | None
    categories: dict[Text, Count]
    skill: Annotated[float, Meta(ge=-1, le=1)] | None


class Profile(TypedDict):
    """What is kept of a client's answer to the data check, for comparisons of two clients; see `InspectReply`."""

    quantity: Quantity
    test_quantity: Annotated[int, Meta(ge=0, le=MOST_SAMPLES)]
    labels: dict[Text, Count]
    columns: list[ColumnProfile]
    target: NotRequired[ColumnProfile]


def impossible_column(column: ColumnProfile, rows: int) -> str | None:
    """Return what no column of so many rows can be described by, or None."""
    counted, distinct = column["present"], column["distinct"]
    if counted > rows or distinct > counted or (column["kind"] == "empty") != (counted == 0):
        return f"counts values that the {rows} rows cannot have"
    if len(column["categories"]) > distinct or sum(column["categories"].values()) > counted:
        return f"counts categories that its {counted} values cannot have"
    if any(spread is not None and spread < 0 for spread in (column["std"], column["log_std"])):
        return "has a negative deviation"
    return None


def profile(name: str, values: Any, y: NDArray[np.int64], silo: Silo, with_skill: bool) -> ColumnProfile:
    """Return what a client says about one column.

    Parameters
    ----------
    name : str
        The column.
    values : pandas.Series
        Its values in the training rows.
    y : array of int
        The label of each row, as a number from 0.
    silo : Silo
        Whose rows they are; its limits say of how many rows a number or a category must be made.
    with_skill : bool
        Whether to compute how well the column predicts the label.
    """
    limit, absent = silo.limits.min_samples, values.isna().to_numpy()
    present = values[~absent]
    found: ColumnProfile = {
        "name": name,
        "kind": _kind(values, len(present)),
        "present": len(present),
        "distinct": 0,
        "whole": False,
        "monotone": False,
        "dates": False,
        "long_text": False,
        "mean": None,
        "std": None,
        "log_mean": None,
        "log_std": None,
        "categories": {},
        "skill": None,
    }
    if len(present) < max(limit, 2) or found["kind"] == "empty":
        return found
    if found["kind"] == "date":
        found["dates"], found["distinct"] = True, int(present.nunique())
        return found
    if found["kind"] == "numeric":
        numbers = present.to_numpy(dtype=np.float64)
        distinct, place, counts = np.unique(numbers, return_inverse=True, return_counts=True)
        _add_moments(found, numbers, silo)
        found["whole"] = bool((numbers == np.floor(numbers)).all())
        steps = np.diff(numbers)
        found["monotone"] = bool((steps > 0).all() or (steps < 0).all())
        found["dates"] = found["whole"] and _day_numbers(numbers)
        shown = [f"{value:.0f}" for value in distinct] if found["whole"] and len(distinct) <= CODES else []
        nearest = distinct
    else:
        texts = present.astype(str).to_numpy(dtype=str)
        distinct, place, counts = np.unique(texts, return_inverse=True, return_counts=True)
        matches = sum(count for text, count in zip(distinct, counts, strict=True) if _DATE.fullmatch(str(text)))
        found["dates"] = bool(matches >= 0.9 * len(texts))
        words = sum(len(str(text).split()) * count for text, count in zip(distinct, counts, strict=True))
        found["long_text"] = bool(words >= 4 * len(texts))
        shown = [str(text) for text in distinct] if len(distinct) <= CATEGORIES else []
        nearest = None
    found["distinct"] = len(distinct)
    found["categories"] = {text: int(count) for text, count in zip(shown, counts, strict=False) if count >= limit}
    if with_skill:
        found["skill"] = skill(place.reshape(-1), y[~absent], limit, nearest)
    return found


def _kind(values: Any, present: int) -> Kind:
    if present == 0:
        return "empty"
    if values.dtype.kind in "mM":
        return "date"
    return "numeric" if values.dtype.kind in "biuf" else "text"


def _add_moments(found: ColumnProfile, numbers: NDArray[np.float64], silo: Silo) -> None:
    summed = summable(numbers, silo)
    found["mean"], found["std"] = rounded(float(summed.mean())), rounded(float(summed.std()))
    sizes = np.abs(numbers[numbers != 0])
    if len(sizes) >= max(silo.limits.min_samples, 2):
        logs = summable(np.log(sizes), silo)  # a value next to 0 is far from all others there
        found["log_mean"], found["log_std"] = rounded(float(logs.mean())), rounded(float(logs.std()))


def _day_numbers(numbers: NDArray[np.float64]) -> bool:
    """Return whether all values are days written as YYYYMMDD."""
    year, month, day = numbers // 10_000, numbers // 100 % 100, numbers % 100
    valid = (year >= 1900) & (year <= 2100) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    return bool(valid.all())


def rounded(value: float) -> float:
    """Return a number with a few significant digits, which is all that a comparison of clients needs."""
    return float(f"{value:.{DIGITS}g}")


def skill(
    place: NDArray[np.int64], y: NDArray[np.int64], limit: int, values: NDArray[np.float64] | None
) -> float | None:
    """Return how well a column alone predicts the label (see the module); None where too few rows could tell.

    Parameters
    ----------
    place : array of int
        Which of the column's distinct values each row has, as a number from 0.
    y : array of int
        The label of each row, as a number from 0.
    limit : int
        The fewest rows that must not have the commonest label.
    values : array or None
        The distinct values in ascending order; None if they have no order.

    Returns
    -------
    float or None
        At most 1, rounded to two digits.

    Examples
    --------
    A column that is the label, and one that has nothing to do with it:

    >>> y = np.array([0, 1] * 20)
    >>> skill(y, y, 1, np.array([0.0, 1.0])), skill(np.zeros(40, dtype=int), y, 1, np.zeros(1)) <= 0
    (1.0, True)
    """
    commonest = np.bincount(y).max(initial=0)
    if len(y) - commonest < max(limit, 2):
        return None
    table = np.zeros((int(place.max()) + 1, int(y.max()) + 1), dtype=np.int64)
    np.add.at(table, (place, y), 1)
    others = table[place]
    others[np.arange(len(y)), y] -= 1
    alone = others.sum(axis=1) == 0
    guess = others.argmax(axis=1)
    if alone.any():
        guess[alone] = np.bincount(y).argmax() if values is None else _nearest(place[alone], table, values)
    errors, guessing = int((guess != y).sum()), int(len(y) - commonest)
    return round(max(-1.0, 1 - errors / guessing), 2)


def _nearest(place: NDArray[np.int64], table: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the majority label at the nearest other value of each of these values."""
    below, above = np.maximum(place - 1, 0), np.minimum(place + 1, len(values) - 1)
    to_below = np.where(place == 0, np.inf, values[place] - values[below])
    to_above = np.where(place == len(values) - 1, np.inf, values[above] - values[place])
    majority: NDArray[np.int64] = table.argmax(axis=1)
    return majority[np.where(to_below <= to_above, below, above)]
