"""Boosted trees as a model: flat weights that messages carry, and a module that scores samples.

A round adds one tree, or one for each of more than two classes. Every tree is a full binary tree of depth D: inner node
i has the children 2 i + 1 and 2 i + 2, a row with x[feature] < threshold goes left. The weights of all of them are

    feature     [rounds, trees, 2^D - 1]    the number of the feature, from 1; 0 where the node is not split
    threshold   [rounds, trees, 2^D - 1]
    value       [rounds, trees, 2^D]        of the leaves; a node that is not split has its value at its leftmost leaf
    base_score  [classes]                   where every sum begins; a numeric target counts as one class

so that rounds that were not trained are zeros, which add nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedcollab.errors import InputError, number
from fedcollab.training.losses import ABSOLUTE

TREES = "xgboost"
#: the parameter that `own-intercept` keeps at each client
BASE = "base_score"
#: rows that are scored at once: [rows, trees] numbers are held in memory
ROWS = 2048
#: the algorithms that trees know: alone, summed histograms, and those with an own base score for each client
TREE_ALGORITHMS = ("local", "fedavg", "own-intercept")
DEEPEST, MOST_BINS = 8, 256


@dataclass(frozen=True)
class Shape:
    """How large a forest is.

    Parameters
    ----------
    rounds : int
        The most rounds.
    trees : int
        Trees a round.
    depth : int
        Levels of splits.
    classes : int
        The number of classes.
    """

    rounds: int
    trees: int
    depth: int
    classes: int

    @property
    def inner(self) -> int:
        """The number of inner nodes of a tree."""
        return int(2**self.depth - 1)

    @property
    def parts(self) -> list[tuple[str, tuple[int, ...]]]:
        """The name and shape of each part of the flat weights."""
        nodes = (self.rounds, self.trees, self.inner)
        leaves = (self.rounds, self.trees, self.inner + 1)
        return [("feature", nodes), ("threshold", nodes), ("value", leaves), (BASE, (self.classes,))]


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees as arrays: views of flat weights, in the shapes that the module's docstring lists."""

    feature: NDArray[np.float32]
    threshold: NDArray[np.float32]
    value: NDArray[np.float32]
    base_score: NDArray[np.float32]

    @classmethod
    def of(cls, w: NDArray[np.float32], shape: Shape) -> Forest:
        """Return views of flat weights."""
        parts, start = [], 0
        for _, sides in shape.parts:
            stop = start + prod(sides)
            parts.append(w[start:stop].reshape(sides))
            start = stop
        return cls(*parts)

    @property
    def rounds(self) -> int:
        """How many rounds have a tree that does anything."""
        used = self.feature.any(axis=(1, 2)) | self.value.any(axis=(1, 2))
        return int(np.flatnonzero(used)[-1]) + 1 if used.any() else 0

    @property
    def base(self) -> NDArray[np.float64]:
        """The base score of each tree of a round."""
        return self.base_score[len(self.base_score) - self.feature.shape[1] :].astype(np.float64)

    def with_base(self, base: NDArray[np.float64]) -> None:
        """Set the base score of each tree of a round, in place."""
        self.base_score[-len(base) :] = base

    def sums(self, x: NDArray[np.float32], first: int, last: int) -> NDArray[np.float64]:
        """Return what the trees of rounds `first` to `last` - 1 add up to for each row, [n, trees].

        Parameters
        ----------
        x : array
            Features, one row a sample.
        first, last : int
            The rounds, counted from 0.
        """
        trees, inner = self.feature.shape[1:]
        count = (last - first) * trees
        if not count or not len(x):
            return np.zeros((len(x), trees))
        feature = self.feature[first:last].reshape(-1).astype(np.intp)
        threshold, value = self.threshold[first:last].reshape(-1), self.value[first:last].reshape(-1)
        begin, row = np.arange(count)[None] * inner, np.arange(len(x))[:, None] * x.shape[1]
        node, flat = np.zeros((len(x), count), dtype=np.intp), x.reshape(-1)
        for _ in range((inner + 1).bit_length() - 1):
            place = begin + node
            column = feature[place]
            node = 2 * node + 1 + ((flat[row + np.maximum(column - 1, 0)] >= threshold[place]) & (column > 0))
        leaves = value[np.arange(count)[None] * (inner + 1) + node - inner]
        found: NDArray[np.float64] = leaves.reshape(len(x), last - first, trees).sum(axis=1, dtype=np.float64)
        return found


def check_forest(forest: Forest, features: int) -> None:
    """Refuse trees that split by features that there are not: files may be from anyone.

    Parameters
    ----------
    forest : Forest
        The trees.
    features : int
        The number of features.

    Raises
    ------
    InputError
        If they do.
    """
    split = forest.feature
    if ((split < 0) | (split > features) | (split != np.floor(split))).any():
        raise InputError(f"the model has trees that split by features that there are not; it takes {features}")


def trees_a_round(classes: int) -> int:
    """Return how many trees a round adds: one for two classes or a numeric target, else one for each class."""
    return 1 if classes <= 2 else classes


class ForestModule(nn.Module):
    """A forest as a module: features of any shape in; a score for each class, or the target, out."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        for name, sides in shape.parts:
            setattr(self, name, nn.Parameter(torch.zeros(sides)))

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [n, classes] of samples."""
        with torch.no_grad():
            x = x.reshape(len(x), -1)
            return torch.cat([self._scores(part) for part in torch.split(x, ROWS)]) if len(x) else self._scores(x)

    def _scores(self, x: Tensor) -> Tensor:
        parts: list[Tensor] = [getattr(self, name).detach() for name, _ in self.shape.parts]
        feature, threshold, value, base = parts
        used = torch.nonzero(feature.any(2).any(1) | value.any(2).any(1))
        rounds = int(used[-1]) + 1 if len(used) else 0
        inner, trees = self.shape.inner, rounds * self.shape.trees
        scores = base.expand(len(x), -1).clone()
        if not trees:
            return scores
        feature, threshold = (part[:rounds].reshape(trees * inner) for part in (feature, threshold))
        columns = feature.to(torch.int64)
        first = (torch.arange(trees, device=x.device) * inner)[None]
        node = torch.zeros((len(x), trees), dtype=torch.int64, device=x.device)
        for _ in range(self.shape.depth):
            place = first + node
            column = columns[place]
            right = (x.gather(1, (column - 1).clamp(min=0)) >= threshold[place]) & (column > 0)
            node = 2 * node + 1 + right
        leaf = torch.arange(trees, device=x.device)[None] * (inner + 1) + node - inner
        found = value[:rounds].reshape(-1)[leaf].reshape(len(x), rounds, self.shape.trees).double().sum(1)
        scores[:, self.shape.classes - self.shape.trees :] += found.float()
        return scores


def xgboost(
    shape: Sequence[int],
    classes: int,
    rounds: int = 100,
    max_depth: int = 3,
    reg_lambda: float = 1.0,
    min_child_weight: float = 1.0,
    gamma: float = 0.0,
    max_bin: int = 256,
) -> nn.Module:
    """Return gradient-boosted trees, without any tree yet; options have XGBoost's names and meanings.

    Parameters
    ----------
    shape : sequence of int
        The shape of one sample.
    classes : int
        The number of classes.
    rounds : int
        The most rounds; `fedcollab.train` sets it to its own `rounds`.
    max_depth : int
        Levels of splits, at most 8; each takes a message a round.
    reg_lambda : float
        Draws leaves to 0.
    min_child_weight : float
        The least sum of hessians of a child.
    gamma : float
        The gain that a split must have.
    max_bin : int
        Into how many bins of like many rows features are cut, at most 256.
    """
    number("rounds", rounds, at_least=1, whole=True)
    number("max_depth", max_depth, at_least=1, at_most=DEEPEST, whole=True)
    number("max_bin", max_bin, at_least=2, at_most=MOST_BINS, whole=True)
    for key, value in (("reg_lambda", reg_lambda), ("min_child_weight", min_child_weight), ("gamma", gamma)):
        number(key, value, at_least=0)
    return ForestModule(Shape(rounds, trees_a_round(classes), max_depth, classes))


@dataclass(frozen=True)
class Growing:
    """How trees are grown, from the text that names a network (`Network.describe`); attributes as in `xgboost`."""

    shape: Shape
    features: int
    reg_lambda: float
    min_child_weight: float
    gamma: float
    max_bin: int


@lru_cache(maxsize=16)
def growing_of(text: str) -> Growing | None:
    """Return how the trees of a network are grown; None where it is no model of trees."""
    spec: dict[str, Any] = json.loads(text)
    if spec["name"] != TREES:
        return None
    options = {"reg_lambda": 1.0, "min_child_weight": 1.0, "gamma": 0.0, "max_bin": 256, **spec["options"]}
    module = xgboost(spec["shape"], spec["classes"], **options)
    assert isinstance(module, ForestModule)
    kept = {key: options[key] for key in ("reg_lambda", "min_child_weight", "gamma", "max_bin")}
    return Growing(module.shape, prod(spec["shape"]), **kept)


def with_rounds(model: Any, options: Mapping[str, Any] | None, rounds: int) -> dict[str, Any]:
    """Return a model's options; those of trees with room for so many rounds."""
    return {**(options or {}), **({"rounds": rounds} if isinstance(model, str) and model == TREES else {})}


def check_trees(model: str, algorithm: str, *, keep: Sequence[str], optimizer: str, loss: str) -> None:
    """Refuse what trees cannot do, in one line; any other model passes.

    Parameters
    ----------
    model, algorithm : str
        By name.
    keep, optimizer, loss
        As in `fedcollab.train`.

    Raises
    ------
    InputError
        If one of them does not go with trees.
    """
    if model != TREES:
        return
    if algorithm not in TREE_ALGORITHMS:
        raise InputError(
            f"`algorithm` (={algorithm!r}) must be one of {', '.join(TREE_ALGORITHMS)} for `model` (={TREES!r})"
        )
    if list(keep) not in ([], ["output-bias"], [BASE]):
        raise InputError(f"`keep` (={list(keep)!r}) must be empty or ['output-bias'] for `model` (={TREES!r})")
    if optimizer != "sgd":
        raise InputError(f"`optimizer` (={optimizer!r}) has no meaning for `model` (={TREES!r}): leave it out")
    if loss == ABSOLUTE:
        raise InputError(
            f"`loss` (={loss!r}) is not for `model` (={TREES!r}), which needs second derivatives: 'squared'"
        )
