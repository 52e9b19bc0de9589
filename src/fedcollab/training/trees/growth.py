r"""Growing trees from summed histograms, level by level, by XGBoost's formulas.

With G and H the sums of gradients and hessians of a node's rows, L and R its halves at a threshold:

    gain = G_L^2 / (H_L + lambda) + G_R^2 / (H_R + lambda) - G^2 / (H + lambda),   H_L, H_R >= min_child_weight
    leaf = - eta G / (H + lambda),  0 for a root with H < min_child_weight

A node is split where the gain is highest (the first feature and threshold of equals), if that is gamma or more. The
last level's leaves follow from the halves of its splits, so that depth D takes D histograms.

Chen, Guestrin: XGBoost: a scalable tree boosting system. 2016.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedcollab.training.trees.cuts import Cuts
from fedcollab.training.trees.forest import Forest, Growing
from fedcollab.training.trees.objectives import objective_of

Floats = NDArray[np.float64]

#: gains up to this are none, as in XGBoost
NO_GAIN = 1e-6


def open_nodes(forest: Forest, position: int, level: int) -> list[tuple[int, int]]:
    """Return the nodes of a level that have rows to split: (tree, node) in order.

    Parameters
    ----------
    forest : Forest
        The trees.
    position : int
        The round, counted from 0.
    level : int
        The level; 0 is the root.
    """
    first, trees = 2**level - 1, forest.feature.shape[1]
    if not level:
        return [(tree, 0) for tree in range(trees)]
    split = forest.feature[position]
    return [
        (tree, node)
        for tree in range(trees)
        for node in range(first, 2 * first + 1)
        if split[tree, (node - 1) // 2] > 0
    ]


def grow_level(
    forest: Forest, position: int, level: int, histograms: Floats, cuts: Cuts, how: Growing, eta: float
) -> None:
    """Split the nodes of one level, and set the values of their halves, in place.

    Parameters
    ----------
    forest : Forest
        The trees.
    position, level
        As in `open_nodes`.
    histograms : array
        Sums of gradients and hessians of each open node and bin, [nodes, bins, 2].
    cuts : Cuts
        The thresholds.
    how : Growing
        lambda, gamma and the least weight of a child.
    eta : float
        The step size.
    """
    nodes = open_nodes(forest, position, level)
    if not nodes:
        return
    left, whole = _left_sums(histograms, cuts)
    right = whole[:, None] - left
    gain = _score(left, how) + _score(right, how) - _score(whole, how)[:, None]
    lightest = np.minimum(left[..., 1], right[..., 1])
    gain[(lightest < how.min_child_weight) | cuts.last[None]] = -np.inf
    best = gain.astype(np.float32).argmax(axis=1)  # as exact as the library: equal gains stay equal, the first is taken
    for row, (tree, node) in enumerate(nodes):
        _set_value(forest, position, tree, node, level, whole[row], how, eta)
        place = int(best[row])
        if gain[row, place] > NO_GAIN and gain[row, place] >= how.gamma:
            feature, threshold = cuts.split(place)
            forest.feature[position, tree, node] = feature + 1
            forest.threshold[position, tree, node] = threshold
            _set_value(forest, position, tree, 2 * node + 1, level + 1, left[row, place], how, eta)
            _set_value(forest, position, tree, 2 * node + 2, level + 1, right[row, place], how, eta)


def set_base(forest: Forest, histograms: Floats, cuts: Cuts, classes: int) -> None:
    """Set the base score from the histograms of the roots at margin 0, in place.

    Parameters
    ----------
    forest : Forest
        The trees, of which there is none yet.
    histograms : array
        Of each tree's root, [trees, bins, 2].
    cuts : Cuts
        The thresholds.
    classes : int
        The number of classes.
    """
    _, whole = _left_sums(histograms, cuts)
    forest.with_base(objective_of(classes).base(whole[:, 0], whole[:, 1]))


def _left_sums(histograms: Floats, cuts: Cuts) -> tuple[Floats, Floats]:
    """Return for each bin the sums up to it within its feature, and the sums of each node."""
    running = histograms.cumsum(axis=1)
    before = np.concatenate([np.zeros_like(running[:, :1]), running], axis=1)[:, cuts.offsets[:-1]]
    whole = running[:, cuts.offsets[1] - 1]
    return running - np.repeat(before, np.diff(cuts.offsets), axis=1), whole


def _score(sums: Floats, how: Growing) -> Floats:
    """Return G^2 / (H + lambda)."""
    score: Floats = sums[..., 0] ** 2 / np.maximum(sums[..., 1] + how.reg_lambda, 1e-300)
    return score


def _set_value(
    forest: Forest, position: int, tree: int, node: int, level: int, sums: Floats, how: Growing, eta: float
) -> None:
    """Set the value of a node that may stay a leaf, at its leftmost leaf."""
    inner = forest.feature.shape[2]
    depth = (inner + 1).bit_length() - 1
    leaf = (node + 1 - 2**level) << (depth - level)
    gradient, hessian = sums
    light = hessian <= 0 or hessian < how.min_child_weight  # a root; halves that are so light are not made
    forest.value[position, tree, leaf] = 0.0 if light else -eta * gradient / (hessian + how.reg_lambda)
