"""Rows to bins, and gradients to histograms, at a client.

    histogram[node, bin] = sum of (g, h) over the node's rows in the bin

A silo whose limits ask for m rows behind every number has its rows in groups (`groups`), and groups take the place of
bins: no sum is of fewer than m rows. Within a node groups are joined where a half of it has fewer than m rows in them:
each feature's groups are halved again and again, always in the middle. Where both halves have m rows, both are halved
further; where one has, the other's rows join it; where none has, all stay together, in the group of the half's middle
row. Rows are treated as if they were there, also where they go at a split: no node has fewer than m of the silo's rows
(or it has none). The two halves of a node are joined alike, in cells that are whole cells of the node itself: the
difference of what was sent about a node and about one of its halves is again made of m rows or none. (In the feature by
which the node was split, a half has no rows on the other's side, as everybody knows, and needs none.)

With a lot, m is drawn for each feature and node between m and 1.5 m. The draw depends on which rows are in the nodes
alone, so that cells are the same every round, and for all thresholds that divide the rows alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab import seeds
from fedcollab.training.trees.cuts import Cuts
from fedcollab.training.trees.forest import Forest
from fedcollab.training.trees.groups import Groups

Floats = NDArray[np.float64]
Bins = NDArray[np.intp]
#: which rows are in which bin, as a sparse matrix of ones [bins, rows]
Table = Any

#: up to so many sums of each tree, products with the table of all rows are faster than counting some rows
MOST_COLUMNS = 2


def bin_rows(x: NDArray[np.float32], cuts: Cuts) -> Bins:
    """Return the bin of each row in each feature, [features, n], counted through all features.

    Parameters
    ----------
    x : array
        Features, one row a sample.
    cuts : Cuts
        The thresholds; a row is in the first bin whose threshold is above its value.
    """
    columns = np.ascontiguousarray(x.reshape(len(x), -1).T)
    bins = [np.searchsorted(cuts.of(f), column, side="right") for f, column in enumerate(columns)]
    return np.asarray(bins, dtype=np.intp).reshape(len(columns), len(x)) + cuts.offsets[:-1, None]


def sum_bins(bins: Bins, nodes: Bins, values: Sequence[Floats], count: int, width: int) -> Floats:
    """Return sums of values by node and bin.

    Parameters
    ----------
    bins : array
        As `bin_rows` returns.
    nodes : array
        The node of each row, from 0; a row with -1 counts nowhere.
    values : sequence of arrays
        What is summed, one value a row.
    count : int
        The number of nodes.
    width : int
        The number of bins.

    Returns
    -------
    array
        [count, width, values].
    """
    inside = nodes >= 0
    if not inside.all():
        bins, nodes, values = bins[:, inside], nodes[inside], [value[inside] for value in values]
    place = (bins + nodes * width).reshape(-1) if count > 1 else bins.reshape(-1)
    sums = np.empty((count * width, len(values)))
    for column, value in enumerate(values):
        repeated = np.broadcast_to(value, bins.shape).reshape(-1)
        sums[:, column] = np.bincount(place, weights=repeated, minlength=count * width)
    return sums.reshape(count, width, len(values))


def table_of(bins: NDArray[np.int32], width: int) -> Table:
    """Return which rows are in which bin: its product with values of the rows is their sums by bin.

    Parameters
    ----------
    bins : array
        The bins of each row, [n, features].
    width : int
        The number of bins.
    """
    from scipy.sparse import csc_array  # type: ignore[import-untyped]

    ends = np.arange(len(bins) + 1) * bins.shape[1]
    return csc_array((np.ones(bins.size), bins.reshape(-1), ends), shape=(width, len(bins)))


def halves(table: Table, values: Floats, half: Bins, parents: Bins, above: Floats) -> Floats:
    """Return the sums of both halves of nodes that were split, [2 nodes, values, bins]: left, right, left, ...

    Parameters
    ----------
    table : matrix
        As `table_of` returns.
    values : array
        What is summed, [n, trees, values], of which all sums are exact.
    half : array
        The half that each row is in, [n, trees]: those of node k are 2 k and 2 k + 1.
    parents : array
        The nodes that were split.
    above : array
        Their sums, [nodes, values, bins].
    """
    rows, trees, count = values.shape
    most = 2 * max(int(half.max()) // 2, int(parents[-1])) + 2
    counts = np.bincount(half.reshape(-1), minlength=most).reshape(-1, 2)[parents]
    smaller = (counts[:, 1] < counts[:, 0]).astype(np.intp)
    number = np.full(most, -1)  # of the sum that each row of a half belongs to
    number[2 * parents + smaller] = np.arange(len(parents))
    belongs = number[half]
    if len(parents) <= MOST_COLUMNS * trees:
        row, tree = np.nonzero(belongs >= 0)
        columns = np.zeros((rows, len(parents), count))
        columns[row, belongs[row, tree]] = values[row, tree]
        found = (table @ columns.reshape(rows, -1)).T.reshape(len(parents), count, -1)
    else:
        bins = table.indices.reshape(rows, -1).T
        each = [sum_bins(bins, belongs[:, tree], list(values[:, tree].T), len(parents), table.shape[0])
                for tree in range(trees)]  # fmt: skip
        found = np.moveaxis(np.sum(each, axis=0), 1, 2)
    both = np.empty((len(parents), 2, *above.shape[1:]))
    order = np.arange(len(parents))
    both[order, smaller], both[order, 1 - smaller] = found, above - found
    return both.reshape(-1, *above.shape[1:])


def nodes_at(
    forest: Forest, position: int, tree: int, level: int, bins: Bins, cells: Cuts | Groups, lot: str = ""
) -> tuple[Bins, Bins]:
    """Return each row's node at a level of a tree that is being grown, counted from the level's first, and its cells.

    Parameters
    ----------
    forest, position, level
        As in `growth.open_nodes`.
    tree : int
        Which tree of the round.
    bins : array
        The rows' bins, or the groups that they are in.
    cells : Cuts or Groups
        What these are; groups of few rows are joined in every node.
    lot : str
        As in `join_cells`.

    Returns
    -------
    nodes, bins : array
        Nodes are -1 for rows that have come to a leaf.
    """
    node = np.zeros(bins.shape[1], dtype=np.intp)
    rows = np.arange(bins.shape[1])
    for depth in range(level):
        feature = forest.feature[position, tree, 2**depth - 1 : 2 ** (depth + 1) - 1].astype(np.intp)
        threshold = forest.threshold[position, tree, 2**depth - 1 : 2 ** (depth + 1) - 1]
        first_right = np.array([
            cells.first_right(f - 1, value) if f else 0 for f, value in zip(feature, threshold, strict=True)
        ])  # fmt: skip
        column = np.where(node >= 0, feature[node], 0)
        right = bins[np.maximum(column - 1, 0), rows] >= first_right[node]
        node = np.where(column > 0, 2 * node + right, -1)
        if isinstance(cells, Groups):
            inside = hashlib.blake2b(node.tobytes(), digest_size=16).hexdigest()
            bins = join_cells(bins, node, feature, cells, lot and lot + inside)
    return node, bins


def join_cells(bins: Bins, node: Bins, split: Bins, groups: Groups, lot: str = "") -> Bins:
    """Return the rows' groups with those of few rows joined to their neighbours, alike in both halves of a node.

    Parameters
    ----------
    bins : array
        The rows' groups, joined for the level above.
    node : array
        The rows' nodes at this level, or -1.
    split : array
        By which feature each node of the level above was split, counted from 1; 0 if it was not.
    groups : Groups
        The groups; `groups.least` is the fewest rows of a cell, in each half that has rows at all.
    lot : str
        What is drawn how many more rows a cell must have; empty for none.
    """
    width, features, pairs = int(groups.offsets[-1]), len(groups.ends), len(split)
    counts = sum_bins(bins, node, [np.ones(len(node))], 2 * pairs, width)[:, :, 0].reshape(pairs, 2, width)
    before = np.concatenate([np.zeros((pairs, 2, 1)), counts.cumsum(axis=2)], axis=2)
    empty = counts[:, :, : groups.offsets[1]].sum(axis=2) == 0
    wanted = np.full((pairs, features), float(groups.least))
    if lot:
        wanted *= 1 + seeds.generator(0, "cells", lot).random(wanted.shape) / 2
    pair, feature = (each.reshape(-1) for each in np.indices(wanted.shape))
    low, high = groups.offsets[feature], groups.offsets[feature + 1]  # the groups that are halved
    first, last = low, high  # those whose rows are there
    done: list[NDArray[np.int64]] = []
    while len(pair):
        middle = low + (high - low) // 2
        enough = []
        for begin, end in ((first, middle), (middle, last)):
            part = before[pair, :, end] - before[pair, :, begin]
            other_side = (split[pair] == feature + 1)[:, None] & (part == 0)
            filled = (part >= wanted[pair, feature][:, None]) | empty[pair] | other_side
            enough.append(filled.all(axis=1) & part.any(axis=1))
        ends = (high - low == 1) | ~(enough[0] | enough[1])
        done.append(np.stack([pair[ends], first[ends], last[ends]]))
        left, right, both = ~ends & enough[0], ~ends & enough[1], ~ends & enough[0] & enough[1]
        pair, feature = (np.concatenate([each[left], each[right]]) for each in (pair, feature))
        first = np.concatenate([first[left], np.where(both, middle, first)[right]])
        last = np.concatenate([np.where(both, middle, last)[left], last[right]])
        low, high = np.concatenate([low[left], middle[right]]), np.concatenate([middle[left], high[right]])
    cells = np.concatenate(done, axis=1)
    target = np.empty((2 * pairs, width), dtype=np.intp)
    for each, running in enumerate(before.reshape(2 * pairs, width + 1)):
        _, first, last = cells[:, cells[0] == each // 2]
        half = (running[first] + running[last]) / 2
        place = np.clip(np.searchsorted(running[1:], half, side="right"), first, last - 1)
        order = np.argsort(first)
        target[each] = np.repeat(place[order], (last - first)[order])
    joined: Bins = np.where(node >= 0, target[np.maximum(node, 0), bins], bins)
    return joined
