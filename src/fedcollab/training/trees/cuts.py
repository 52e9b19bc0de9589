"""The thresholds by which all clients bin their features, agreed on from counts.

The server asks how many rows each client has between edges, first at signed powers of two, which suit features of any
scale, then between finer edges where more than a bin's rows lie. Then thresholds are set so that every bin has about as
many rows, between two values where there is a gap; a feature of few values gets one bin each. Only counts leave, and a
silo lets a count of fewer rows than its limit join the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.wire.action import Refused

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

#: the exponents of the first edges, and into how many parts a cell is cut how often
SMALLEST, LARGEST = -20, 40
PARTS, TIMES = 8, 3
#: into how many parts a cell is cut that has more than a quarter of all rows: beside a value far from all others, such
#: as a code for missing ones, these rows are close to each other
MANY = 128


@dataclass(frozen=True, eq=False)
class Cuts:
    """Thresholds of all features, one after the other; feature f has one bin more than thresholds.

    Parameters
    ----------
    values : array of float32
        The thresholds, ascending within each feature.
    ends : array of int64
        Where each feature's thresholds end.
    """

    values: NDArray[np.float32]
    ends: NDArray[np.int64]

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where each feature's bins begin, and the number of all bins."""
        return np.concatenate([[0], self.ends + np.arange(1, len(self.ends) + 1)])

    @cached_property
    def key(self) -> bytes:
        """The thresholds as bytes, to tell them from others."""
        return self.values.tobytes() + self.ends.tobytes()

    @cached_property
    def last(self) -> NDArray[np.bool_]:
        """Which bins are the last of their feature: nothing is right of them."""
        last = np.zeros(int(self.offsets[-1]), dtype=bool)
        last[self.offsets[1:] - 1] = True
        return last

    def of(self, feature: int) -> NDArray[np.float32]:
        """Return the thresholds of one feature."""
        return self.values[self.ends[feature - 1] if feature else 0 : self.ends[feature]]

    def first_right(self, feature: int, threshold: float) -> int:
        """Return the first bin that is right of a threshold."""
        return int(self.offsets[feature] + np.searchsorted(self.of(feature), threshold, side="right"))

    def split(self, place: int) -> tuple[int, float]:
        """Return the feature of a bin, and the threshold above it."""
        feature = int(np.searchsorted(self.offsets, place, side="right")) - 1
        return feature, float(self.values[place - feature])

    @classmethod
    def joined(cls, parts: list[NDArray[np.float32]]) -> Cuts:
        """Return the thresholds of features given one by one."""
        return cls(
            np.concatenate([np.zeros(0, dtype=np.float32), *parts]).astype(np.float32),
            np.cumsum([len(part) for part in parts], dtype=np.int64),
        )


def agree(count: Callable[[Cuts], Counts], features: int, bins: int) -> Cuts:
    """Return thresholds that cut every feature into bins of about as many rows.

    Parameters
    ----------
    count : callable
        Given edges of each feature, returns how many rows lie in each cell, features one after the other.
    features : int
        The number of features.
    bins : int
        The most bins of a feature.
    """
    powers = 2.0 ** np.arange(SMALLEST, LARGEST + 1)
    edges = [np.concatenate([-powers[::-1], [0.0], powers]).astype(np.float32)] * features
    for attempt in range(TIMES + 1):
        asked = Cuts.joined(edges)
        counted = np.split(count(asked), asked.offsets[1:-1])
        if attempt < TIMES:
            edges = [_finer(old, cells, bins) for old, cells in zip(edges, counted, strict=True)]
    return Cuts.joined([_thresholds(old, cells, bins) for old, cells in zip(edges, counted, strict=True)])


def _finer(edges: NDArray[np.float32], cells: Counts, bins: int) -> NDArray[np.float32]:
    """Return edges around the cells that have rows, with those of many rows cut into parts."""
    most = cells.sum() / bins
    kept = [edges[:0]]
    for place in np.flatnonzero(cells).tolist():
        low, high = edges[max(place - 1, 0)], edges[min(place, len(edges) - 1)]
        parts = 1 if low == high or cells[place] <= most else PARTS if cells[place] <= cells.sum() / 4 else MANY
        kept.append(np.linspace(low, high, parts + 1, dtype=np.float32))
    return np.unique(np.concatenate(kept))


def _thresholds(edges: NDArray[np.float32], cells: Counts, bins: int) -> NDArray[np.float32]:
    """Return at most `bins` - 1 thresholds, in the middle of the gaps between cells that have rows."""
    filled = np.flatnonzero(cells)
    if len(filled) < 2:
        return edges[:0]
    low, high = edges[filled[:-1]].astype(np.float64), edges[filled[1:] - 1].astype(np.float64)
    between = ((low + high) / 2).astype(np.float32)
    if len(filled) > bins:
        share = np.cumsum(cells[filled])[:-1] / cells.sum() * bins
        wanted = np.searchsorted(share, np.arange(1, bins), side="left")
        between = between[np.unique(np.minimum(wanted, len(between) - 1))]
    return np.unique(between)


def limit_cuts(message: Mapping[str, Any], features: int, most: int) -> None:
    """Refuse thresholds that are not ascending within each feature, or too many.

    Parameters
    ----------
    message : mapping
        A message with `cuts` and `ends`.
    features : int
        The number of features.
    most : int
        The most thresholds of a feature.

    Raises
    ------
    Refused
        If they do not fit.
    """
    ends, values = message["ends"], message["cuts"]
    sizes = np.diff(ends, prepend=0)
    if len(ends) != features or sizes.min() < 0 or sizes.max() > most or ends[-1] != len(values):
        raise Refused(f"`ends` must say where the thresholds of {features} features end, at most {most} each")
    inside = np.ones(max(0, len(values) - 1), dtype=bool)
    inside[ends[(ends > 0) & (ends < len(values))] - 1] = False
    if np.any(np.diff(values)[inside] <= 0):
        raise Refused("`cuts` must ascend within each feature")
