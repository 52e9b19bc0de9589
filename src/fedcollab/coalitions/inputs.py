"""Reading what a user hands to the coalitions stage: distances, quantities, names. One clear line where it is wrong.

A plain matrix, a DataFrame or an object with `.matrix` (such as `Distances`) is accepted. Floating-point matrices are
used as they are, never copied and never changed; a float32 matrix of 10,000 clients stays 400 MB. What carries names
(a DataFrame, a Series, a mapping) is read by name: the order of its entries does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcollab.errors import InputError, number

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Matrix = NDArray[np.floating[Any]]

_ROWS = 64


@dataclass(frozen=True)
class Inputs:
    """Checked inputs: N x N matrix, N quantities, names (None: clients are called by position), unobserved pairs."""

    matrix: Matrix
    quantities: Floats
    names: tuple[str, ...] | None
    unobserved: NDArray[np.bool_] | None
    symmetric: bool

    def label(self, client: int) -> str | int:
        """What the user calls the client at this position."""
        return self.names[client] if self.names is not None else client


def read_C(value: object) -> float | str:
    """Return "auto", or C as a positive number.

    >>> read_C("auto"), read_C("2.5")
    ('auto', 2.5)
    """
    if isinstance(value, str) and value == "auto":
        return value
    try:
        return number("C", value, above=0)
    except InputError as error:
        raise InputError(f"{error}, or 'auto'") from None


def read_inputs(distances: Any, quantities: Any, names: Iterable[Any] | None = None) -> Inputs:
    """Check everything about the clients; `quantities` and `names` default to those that `distances` carries."""
    if _is_frame(distances):
        distances, names = _aligned(distances, names)
    elif hasattr(distances, "matrix"):
        quantities = getattr(distances, "quantities", None) if quantities is None else quantities
        names = getattr(distances, "names", None) if names is None else names
    matrix = _matrix(getattr(distances, "matrix", distances))
    observed = getattr(distances, "observed", None)
    unobserved = None
    if observed is not None:
        seen = np.asarray(observed, dtype=bool)
        if seen.shape != matrix.shape:
            raise InputError(f"`observed` (shape {seen.shape}) must have the shape of the distances {matrix.shape}")
        missing = ~(seen & seen.T)
        np.fill_diagonal(missing, False)
        if missing.any():
            # An unmeasured pair may carry anything; it is kept apart, and priced at the largest distance.
            unobserved = missing
            matrix = np.where(missing, np.asarray(1, dtype=matrix.dtype), matrix)
    symmetric = _check_matrix(matrix)
    called = _names(names, len(matrix))
    counts = _quantities(_by_name(quantities, called, len(matrix)), len(matrix))
    return Inputs(matrix, counts, called, unobserved, symmetric)


def check_assignment(assignment: ArrayLike, count: int) -> Labels:
    """Coalition labels 0..K-1 in order of first appearance, from any labels."""
    given = np.asarray(assignment)
    if given.shape != (count,):
        raise InputError(f"`assignment` (shape {given.shape}) must hold one label for each of the {count} clients")
    return first_appearance(np.unique(given, return_inverse=True)[1])


def first_appearance(labels: NDArray[np.integer[Any]]) -> Labels:
    """Rename labels to 0..K-1 in order of first appearance.

    >>> first_appearance(np.array([7, 2, 7, 0])).tolist()
    [0, 1, 0, 2]
    """
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def _is_frame(given: object) -> bool:
    """Return whether this is a pandas DataFrame, without importing pandas to find out."""
    return hasattr(given, "columns") and hasattr(given, "index")


def _counted(labels: Sequence[Any]) -> bool:
    """Return whether labels are those that pandas gives where none were given: 0, 1, 2, ... in order."""
    return [str(label) for label in labels] == [str(position) for position in range(len(labels))]


def _aligned(frame: Any, names: Iterable[Any] | None) -> tuple[Any, Iterable[Any] | None]:
    """Return the matrix of a DataFrame with its columns in the order of its rows, and the clients' names.

    Rows or columns without labels of their own are in the order of the other side. With `names` given, rows and columns
    come in that order.
    """
    rows, columns = list(frame.index), list(frame.columns)
    if len(rows) != len(columns) or (_counted(rows) and _counted(columns)):
        return frame, names
    if {str(label) for label in rows} != {str(label) for label in columns}:
        rows, columns = (columns if _counted(rows) else rows), (rows if _counted(columns) else columns)
    order = rows if names is None else list(names)
    row_of, column_of = _places("distances", rows), _places("distances", columns)
    _same_labels("index", row_of, "columns", column_of)
    if names is not None:
        _same_labels("index", row_of, "names", _places("names", order))
    wanted = [str(label) for label in order]
    taken = [row_of[label] for label in wanted], [column_of[label] for label in wanted]
    values = frame.to_numpy()
    in_order = all(places == list(range(len(order))) for places in taken)
    return values if in_order else values[np.ix_(*taken)], wanted


def _places(argument: str, labels: Sequence[Any]) -> dict[str, int]:
    """Return the position of each label; refuse one that is there twice."""
    found: dict[str, int] = {}
    for position, label in enumerate(labels):
        if str(label) in found:
            raise InputError(f"`{argument}` has {str(label)!r} twice; expected each client once")
        found[str(label)] = position
    return found


def _same_labels(first: str, ones: Mapping[str, int], second: str, others: Mapping[str, int]) -> None:
    """Refuse two sets of labels that are not the same, naming the first label that one of them lacks."""
    for here, known, there, wanted in ((first, ones, second, others), (second, others, first, ones)):
        lacking = next((label for label in wanted if label not in known), None)
        if lacking is not None:
            raise InputError(
                f"`distances`: {lacking!r} is in its {there} but not in its {here}; expected the same labels"
            )


def named_values(argument: str, given: Any) -> Mapping[Any, Any] | None:
    """Return values by name, if they came as a mapping or as a Series with labels of its own; else None."""
    if isinstance(given, Mapping):
        return given
    if not hasattr(given, "index") or not hasattr(given, "to_numpy") or _is_frame(given):
        return None
    labels = list(given.index)
    if _counted(labels):
        return None
    _places(argument, labels)
    return dict(zip(labels, given.to_numpy(), strict=True))


def _by_name(given: Any, names: tuple[str, ...] | None, count: int) -> Any:
    """Return quantities in the order of the clients, if they came with names; else as they are."""
    named = named_values("quantities", given)
    if named is None:
        return given
    wanted = [str(position) for position in range(count)] if names is None else names
    found = {str(label): value for label, value in named.items()}
    unknown = next((label for label in found if label not in wanted), None)
    if unknown is not None:
        hint = "; the clients have no names: give `names`" if names is None else f"; clients: {some(names)}"
        raise InputError(f"`quantities` names {unknown!r}, which is not a client{hint}")
    missing = next((label for label in wanted if label not in found), None)
    if missing is not None:
        raise InputError(f"`quantities` has no number for the client {missing!r}")
    return [found[label] for label in wanted]


def some(names: Sequence[str]) -> str:
    """Return the first names as text."""
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")


def _matrix(given: object) -> Matrix:
    try:
        matrix = np.asarray(given)
        if not np.issubdtype(matrix.dtype, np.floating) or matrix.dtype.itemsize not in (4, 8):
            matrix = matrix.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError("`distances` must be a square matrix of numbers") from None
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"`distances` (shape {matrix.shape}) must be a square matrix")
    if len(matrix) == 0:
        raise InputError("`distances` (shape (0, 0)) must hold at least one client")
    return matrix


def _check_matrix(matrix: Matrix) -> bool:
    """Refuse NaN, values outside [0, 1] and a non-zero diagonal; return whether the matrix is symmetric."""
    for start in range(0, len(matrix), _ROWS):
        block = matrix[start : start + _ROWS]
        low, high = block.min(), block.max()
        if not (low >= 0 and high <= 1):
            row, column = np.argwhere(~((block >= 0) & (block <= 1)))[0]
            value = float(block[row, column])
            raise InputError(
                f"`distances` (={value:g} at row {start + row}, column {column}) must be at least 0 and at most 1"
            )
    diagonal = matrix.diagonal()
    if diagonal.any():
        row = int(np.flatnonzero(diagonal)[0])
        raise InputError(f"`distances` (={diagonal[row]:g} at row {row}, column {row}) must have a zero diagonal")
    tile = 512
    return all(
        np.array_equal(matrix[i : i + tile, j : j + tile], matrix[j : j + tile, i : i + tile].T)
        for i in range(0, len(matrix), tile)
        for j in range(i, len(matrix), tile)
    )


def _quantities(given: ArrayLike | None, count: int) -> Floats:
    if given is None:
        raise InputError("`quantities` (=None) must hold one number of samples per client")
    try:
        quantities = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("`quantities` must be one number of samples per client") from None
    if quantities.shape != (count,):
        raise InputError(
            f"`quantities` (shape {quantities.shape}) must hold one number for each of the {count} clients"
        )
    bad = np.flatnonzero(~(np.isfinite(quantities) & (quantities > 0)))
    if bad.size:
        where = int(bad[0])
        raise InputError(f"`quantities` (={quantities[where]:g} at position {where}) must be positive finite numbers")
    return quantities


def _names(given: Any, count: int) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, str):
        raise InputError(f"`names` (={given!r}) must be a list with one name per client")
    names = tuple(str(name) for name in given)
    if len(names) != count:
        raise InputError(
            f"`names` (length {len(names)}) must hold one name for each of the {count} clients in `distances`"
        )
    if len(set(names)) < count:
        twice = next(name for position, name in enumerate(names) if name in names[:position])
        raise InputError(f"`names` (={twice!r} twice) must differ from each other")
    return names
