"""Where a client's rows are in the trees that a round grows, level by level: each level goes on from the one above."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedcollab.training.trees.forest import Forest

Nodes = NDArray[np.intp]


class Places:
    """The node of each row in each tree of one round, at the lowest level that was looked at.

    Parameters
    ----------
    x : array of float32
        Features, one row a sample.
    """

    def __init__(self, x: NDArray[np.float32]) -> None:
        self._flat, self._row = np.ascontiguousarray(x).reshape(-1), np.arange(len(x))[:, None] * x.shape[1]
        self._level, self._above, self._nodes = -1, b"", np.zeros((0, 0), dtype=np.intp)

    def at(self, forest: Forest, position: int, level: int) -> Nodes:
        """Return the node of each row at a level, counted from the level's first, [n, trees].

        A row that has come to a leaf goes on to the left, as leaves have their value at the leftmost leaf below.

        Parameters
        ----------
        forest : Forest
            The trees.
        position : int
            The round, counted from 0.
        level : int
            The level; the depth of the trees gives leaves.
        """
        if not 0 <= self._level <= level or splits_above(forest, position, self._level) != self._above:
            self._level = 0
            self._nodes = np.zeros((len(self._row), forest.feature.shape[1]), dtype=np.intp)
        while self._level < level:
            self._descend(forest, position)
        self._above = splits_above(forest, position, level)
        return self._nodes

    def leaves(self, forest: Forest, position: int) -> NDArray[np.float64]:
        """Return the value of the leaf of each row in each tree of a round, [n, trees]; arguments as in `at`."""
        trees, leaves = forest.value.shape[1:]
        nodes = self.at(forest, position, leaves.bit_length() - 1)
        found: NDArray[np.float64] = (
            forest.value[position].astype(np.float64).reshape(-1)[nodes + np.arange(trees) * leaves]
        )
        return found

    def _descend(self, forest: Forest, position: int) -> None:
        """Send all rows from their nodes to the halves of these."""
        first, count = 2**self._level - 1, 2**self._level
        feature = forest.feature[position, :, first : first + count].astype(np.intp).reshape(-1)
        threshold = forest.threshold[position, :, first : first + count].reshape(-1)
        node = self._nodes + np.arange(forest.feature.shape[1]) * count
        right = self._flat[self._row + np.maximum(feature - 1, 0)[node]] >= threshold[node]
        if not feature.all():
            right &= feature[node] > 0
        self._nodes = 2 * self._nodes + right
        self._level += 1


def splits_above(forest: Forest, position: int, level: int) -> bytes:
    """Return which splits of a round's trees are above a level, as bytes to compare; arguments as in `Places.at`."""
    inner = 2**level - 1
    parts = (forest.feature[position, :, :inner], forest.threshold[position, :, :inner])
    return b"".join([position.to_bytes(8, "little"), *(part.tobytes() for part in parts)])
