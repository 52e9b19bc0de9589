"""What happened, round by round: one row a round and client, in memory as columns of numbers, on disk as JSON lines."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from fedcollab.errors import InputError
from fedcollab.parsing import MISFITS, MOST_DATA, complete, read_bytes

Row = dict[str, Any]
KEYS = ("round", "client", "coalition")


class History(Sequence[Row]):
    """The history of a training: rows with `round`, `client`, `coalition`, `train_loss` and, if evaluated, measures.

    `pandas.DataFrame(history)` makes a table of it; so does `pandas.read_json(path, lines=True)` of its file.

    Parameters
    ----------
    rows : sequence of mappings
        The first rows.

    Examples
    --------
    >>> history = History([{"round": 1, "client": "north", "coalition": 0, "train_loss": 0.5}])
    >>> history[0]["train_loss"], len(history)
    (0.5, 1)
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]] = ()) -> None:
        self._clients: dict[str, int] = {}
        self._index: dict[str, array[int]] = {key: array("l") for key in KEYS}
        self._values: dict[str, array[float]] = {}
        for row in rows:
            self.add(row)

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row, with `round`, `client`, `coalition` and any measures."""
        client = self._clients.setdefault(row["client"], len(self._clients))
        for key, value in zip(KEYS, (row["round"], client, row["coalition"]), strict=True):
            self._index[key].append(int(value))
        for key in row:
            if key not in KEYS and key not in self._values:
                self._values[key] = array("d", [math.nan] * (len(self) - 1))
        for key, column in self._values.items():
            value = row.get(key)
            column.append(math.nan if value is None else value)

    def __len__(self) -> int:
        return len(self._index["round"])

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        names = list(self._clients)
        row: Row = {
            "round": self._index["round"][index],
            "client": names[self._index["client"][index]],
            "coalition": self._index["coalition"][index],
        }
        for key, column in self._values.items():
            row[key] = None if math.isnan(column[index]) else column[index]
        return row

    def __iter__(self) -> Iterator[Row]:
        return (self[index] for index in range(len(self)))

    def curve(self, measure: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the rounds in which a measure was taken, and its mean over clients in each."""
        rounds = np.array(self._index["round"], dtype=np.int64)
        values = np.array(self._values.get(measure, [math.nan] * len(self)), dtype=np.float64)
        known = rounds[np.isfinite(values)]
        numbers = np.unique(known)
        return numbers, np.array([values[(rounds == number) & np.isfinite(values)].mean() for number in numbers])

    def lines(self) -> bytes:
        """Return the history as JSON lines."""
        return b"".join(line(row) for row in self)

    @classmethod
    def read(cls, path: str | Path) -> History:
        """Read a history from JSON lines; a last line cut short by a killed process is left out.

        Raises
        ------
        InputError
            If another line is not JSON, or a row lacks its round, client or coalition.
        """
        rows = []
        content = read_bytes(path, "a history", MOST_DATA).decode("utf-8", "replace").split("\n")
        for number, text in enumerate(content, start=1):
            try:
                row = json.loads(text)
                if not isinstance(row, dict):
                    raise TypeError("it is no object")
                rows.append(row)
            except MISFITS as error:
                if number == len(content):
                    break
                why = error.msg if isinstance(error, json.JSONDecodeError) else str(error).split(";")[0]
                raise InputError(f"`{path}` line {number} is not JSON: {why}") from None
        with complete(path, "history"):
            return cls(rows)


def line(row: Mapping[str, Any]) -> bytes:
    """Return one row as a JSON line; NaN becomes null."""
    plain = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()
    }
    return (json.dumps(plain, ensure_ascii=False) + "\n").encode()
