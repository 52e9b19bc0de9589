"""Plain CSV files: a matrix of distances and a list of quantities, with or without names."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from fedcollab.coalitions.inputs import Floats
from fedcollab.errors import InputError, is_number
from fedcollab.parsing import MOST_TEXT, read_text


def read_matrix(path: str | Path) -> tuple[Floats, tuple[str, ...] | None]:
    """An N x N matrix; a first row or a first column that is not numbers holds the names."""
    rows = _rows(path)
    names: tuple[str, ...] | None = None
    if not any(is_number(cell) for cell in rows[0]):
        names, rows = tuple(cell for cell in rows[0] if cell), rows[1:]
    if rows and not any(is_number(row[0]) for row in rows):
        beside = tuple(row[0] for row in rows)
        if names is not None and len(names) == len(beside) + 1:
            names = names[1:]
        if names is not None and names != beside:
            raise InputError(f"`{path}`: the names of the rows differ from those of the columns")
        names, rows = beside, [row[1:] for row in rows]
    width = len(rows[0]) if rows else 0
    for line, row in enumerate(rows, 1):
        if len(row) != width:
            raise InputError(f"`{path}`: row {line} holds {len(row)} numbers; the first row holds {width}")
        for cell in row:
            if not is_number(cell):
                raise InputError(f"`{path}`: row {line} holds {cell!r}; expected a number")
    values = np.array([[float(cell) for cell in row] for row in rows]).reshape(len(rows), width)
    if names is not None and len(names) != len(values):
        raise InputError(f"`{path}`: {len(names)} names for {len(values)} rows")
    return values, names


def read_quantities(path: str | Path, names: tuple[str, ...] | None) -> Floats:
    """One number per client, in a row or a column; with a name before or above each, in any order."""
    rows = _rows(path)
    if (
        len(rows) == 2
        and 1 < len(rows[0]) == len(rows[1])
        and not any(map(is_number, rows[0]))
        and is_number(rows[1][0])
    ):
        rows = [list(pair) for pair in zip(*rows, strict=True)]  # names above the numbers
    if len(rows) > 1 and len(rows[0]) > 1 and not is_number(rows[0][-1]):
        rows = rows[1:]  # a heading
    if len(rows[0]) == 1 and not is_number(rows[0][0]):
        rows = rows[1:]
    if rows and len(rows[0]) == 2 and not is_number(rows[0][0]):
        given: dict[str, str] = {}
        for row in rows:
            if len(row) != 2:
                raise InputError(f"`{path}` holds {','.join(row)!r}; expected a name and a number in every line")
            if row[0] in given:
                raise InputError(f"`{path}` holds {row[0]!r} twice; expected one number of samples for each client")
            given[row[0]] = row[1]
        if names is None:
            cells = list(given.values())
        else:
            missing = [name for name in names if name not in given]
            if missing:
                raise InputError(f"`{path}` has no quantity for {missing[0]!r}")
            cells = [given[name] for name in names]
    else:
        cells = [cell for row in rows for cell in row if cell]
    for cell in cells:
        if not is_number(cell):
            raise InputError(f"`{path}` holds {cell!r}; expected a number of samples")
    return np.array([float(cell) for cell in cells])


def _rows(path: str | Path) -> list[list[str]]:
    text = read_text(path, "a CSV file", MOST_TEXT)
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise InputError(f"`{path}` is empty; expected a CSV file")
    mark = next((mark for mark in ",;\t" if mark in lines[0]), None)
    if mark is None:
        return [line.split() for line in lines]
    try:
        return [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=mark)]
    except csv.Error as error:
        raise InputError(f"`{path}` cannot be read as CSV: {error}") from None
