"""The rows of a silo with limits, as trees see them: in groups of like values, so that no value of a single row shows.

Each feature's rows are put in order and cut into groups of at least m rows, and all rows of a group get one value: that
which m of them share, if there is one, else one between the group's lower and upper quarter, which the lot draws. Rows
of one value are never divided.

Groups follow from the silo's rows and key alone. Counts, histograms, margins and what is measured on rows held out are
all computed from these values, and so no thresholds and no trees that a server makes up can tell where a row is within
its group. What is drawn depends on which rows there are: groups of two parts of the rows are drawn independently, else
many parts would tell where the quarters lie.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedcollab import seeds
from fedcollab.training.trees.cuts import Cuts

#: the most groups of a feature: as many as bins
MOST_GROUPS = 256


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of every feature, one feature after the other.

    Parameters
    ----------
    values : array of float32
        The value of each group, ascending within each feature.
    ends : array of int64
        Where each feature's groups end.
    places : array of int
        The group of each row in each feature, [features, n], counted through all features.
    least : int
        The fewest rows of a group.
    between : sequence of array
        For each feature, the values half-way between the rows of two groups.
    """

    values: NDArray[np.float32]
    ends: NDArray[np.int64]
    places: NDArray[np.intp]
    least: int
    between: Sequence[NDArray[np.float32]]

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where each feature's groups begin, and the number of all groups."""
        return np.concatenate([[0], self.ends])

    @cached_property
    def table(self) -> NDArray[np.float32]:
        """The features of the rows, [n, features], with the values of groups."""
        return np.ascontiguousarray(self.values[self.places].T)

    def alike(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return other rows with the values of the groups to which theirs are nearest, [n, features].

        Parameters
        ----------
        x : array
            Features, one row a sample.
        """
        columns = [
            self.of(feature)[np.searchsorted(between, x[:, feature], side="right")]
            for feature, between in enumerate(self.between)
        ]
        return np.stack(columns, axis=1) if columns else x

    def of(self, feature: int) -> NDArray[np.float32]:
        """Return the values of one feature's groups."""
        return self.values[self.offsets[feature] : self.offsets[feature + 1]]

    def first_right(self, feature: int, threshold: float) -> int:
        """Return the first group that is right of a threshold."""
        return int(self.offsets[feature] + np.searchsorted(self.of(feature), threshold, side="left"))

    def bins(self, cuts: Cuts) -> NDArray[np.intp]:
        """Return the bin of each group."""
        found = [
            cuts.offsets[feature] + np.searchsorted(cuts.of(feature), self.of(feature), side="right")
            for feature in range(len(self.ends))
        ]
        return np.concatenate(found).astype(np.intp)


def group_rows(x: NDArray[np.float32], least: int, lot: str = "") -> Groups:
    """Return the groups of rows.

    Parameters
    ----------
    x : array
        Features, one row a sample.
    least : int
        The fewest rows of a group; more where there would be more than `MOST_GROUPS`.
    lot : str
        What values are drawn from; empty for the middle between the quarters.

    Examples
    --------
    >>> x = np.array([[1], [2], [3], [7], [8], [9]], dtype=np.float32)
    >>> group_rows(x, 3).table[:, 0].tolist()
    [2.0, 2.0, 2.0, 8.0, 8.0, 8.0]
    """
    size = max(least, -(-len(x) // MOST_GROUPS))
    values, places, ends, between = [], [], [0], []
    for feature, column in enumerate(x.T):
        distinct, place, counts = np.unique(column, return_inverse=True, return_counts=True)
        order = hashlib.blake2b(place.tobytes(), digest_size=16).hexdigest()
        draw = seeds.generator(0, "groups", lot, feature, order) if lot else None
        bounds = _bounds(counts, size)
        inner = bounds[1:-1]
        between.append(((distinct[inner - 1].astype(np.float64) + distinct[inner]) / 2).astype(np.float32))
        places.append(ends[-1] + np.searchsorted(bounds[1:], place.reshape(-1), side="right"))
        values += [
            _value(distinct[first:last], counts[first:last], least, draw) for first, last in itertools.pairwise(bounds)
        ]
        ends.append(ends[-1] + len(bounds) - 1)
    return Groups(
        np.array(values, dtype=np.float32),
        np.array(ends[1:], dtype=np.int64),
        np.array(places, dtype=np.intp),
        least,
        between,
    )


def _bounds(counts: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return where groups of different values begin, and the number of values: groups of about as many rows."""
    running, bounds, before = counts.cumsum(), [0], 0
    while (left := int(running[-1]) - before) >= 2 * size:
        last = int(np.searchsorted(running, before + left / (left // size), side="left"))
        bounds.append(last + 1)
        before = int(running[last])
    if 0 < left < size and len(bounds) > 1:
        bounds.pop()  # too few for a group: they join the last
    if bounds[-1] < len(counts):
        bounds.append(len(counts))
    return np.array(bounds, dtype=np.int64)


def _value(
    distinct: NDArray[np.float32], counts: NDArray[np.int64], least: int, draw: np.random.Generator | None
) -> float:
    """Return the value of one group."""
    share = 0.5 if draw is None else float(draw.random())
    if counts.max() >= least:
        return float(distinct[counts.argmax()])
    running, quarter = counts.cumsum(), int(counts.sum()) // 4
    low, high = distinct[np.searchsorted(running, [quarter, running[-1] - 1 - quarter], side="right")]
    if low == high:
        low, high = distinct[0], distinct[-1]
    return float(low + share * (high - low))
