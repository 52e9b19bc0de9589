"""Attacks by the messages of trees: edges and leaves so narrow that single patients lie between them."""

from __future__ import annotations

import json
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from fedcollab.training.trees.client import MOST_EDGES
from fedcollab.training.trees.forest import Forest, growing_of

from .crafted import hunt
from .target import NAME, Recovered, Refusal, Target, judge

PLAIN = {"model": "xgboost", "model_options": {"rounds": 2, "max_depth": 2}}
#: patients who are trained on, and the column that is attacked
ROWS, COLUMN = 48, 3


def edges_of(values: NDArray[np.float64], column: int = COLUMN) -> dict[str, NDArray[np.float32] | NDArray[np.int64]]:
    """Return edges of one column alone."""
    ends = np.where(np.arange(5) < column, 0, len(values))
    return {"cuts": values.astype(np.float32), "ends": ends.astype(np.int64)}


def fine_edges(target: Target) -> Recovered:
    """`count-rows` with as many edges as a silo takes: a cell that is not empty is where a patient's value is."""
    guesses: list[float] = []
    target.prepare()
    with suppress(Refusal):
        grid = np.linspace(-3, 3, MOST_EDGES)
        message = {"setting": target.setting(**PLAIN), "round": 0, **edges_of(grid)}
        counts = target.ask("count-rows", message)["counts"][COLUMN : COLUMN + len(grid) + 1]
        places = np.flatnonzero(counts[1:-1])[:ROWS]
        guesses = [float(grid[place : place + 2].mean()) for place in places]
    return judge(target, guesses, COLUMN)


def walked_edges(target: Target) -> Recovered:
    """`count-rows` with one edge that walks along a column: the count of one side jumps at every patient's value."""
    found: list[tuple[float, float]] = []
    target.prepare()
    with suppress(Refusal):
        for edge in np.linspace(-2, 2, 1200 if target.limits.max_models > 1200 else 280):
            message = {"setting": target.setting(**PLAIN), "round": 0, **edges_of(np.array([edge]))}
            found.append((float(edge), float(target.ask("count-rows", message)["counts"][COLUMN])))
    if len(found) < 2:
        return judge(target, [], COLUMN)
    grid, counts = np.array(found).T
    jumps = np.argsort(-np.diff(counts), kind="stable")[:ROWS]
    return judge(
        target, [float(grid[place : place + 2].mean()) for place in jumps if np.diff(counts)[place] > 0], COLUMN
    )


def narrow_leaves(target: Target) -> Recovered:
    """`train-trees` after a crafted tree with a leaf as narrow as a guess: the sum of gradients says who is in it."""
    found: list[tuple[float, float]] = []
    target.prepare()
    setting = target.setting(**PLAIN)
    how = growing_of(json.loads(setting)["model"])
    assert how is not None
    with suppress(Refusal):
        for number, low in enumerate(np.arange(-2, 2, 0.005 if target.limits.max_rounds < 10_000 else 0.0025)):
            w = np.zeros(size(how.shape.parts), dtype=np.float32)
            forest = Forest.of(w, how.shape)
            forest.feature[0, 0, [0, 2]] = COLUMN + 1
            forest.threshold[0, 0, [0, 2]] = low, low + 0.005
            forest.value[0, 0, 2] = 8.0
            message = {"setting": setting, "round": 2, "level": 0, "w": padded(w), "coalition": [NAME, "ghost"]}
            reply = target.ask("train-trees", {**message, "training": f"t{number}", **edges_of(np.zeros(0))})
            found.append((float(low + 0.0025), float(reply["sums"][0, :, 0].mean())))
    best = sorted(found, key=lambda each: -each[1])[:ROWS]
    return judge(target, [place for place, _ in best], COLUMN)


def settled_cells(target: Target) -> Recovered:
    """`count-rows` with edges drawn anew: cells of few rows are halved on, towards the row that decides, to its value.

    Where a cell ends is seen from the place of its count: the middle of a wide interval, or the only one of a narrow.
    """
    guesses: list[float] = []
    target.prepare()
    draw = np.random.default_rng(0)
    with suppress(Refusal):
        for _ in range(300):
            grid = np.unique(draw.uniform(-3, 3, 4096).astype(np.float32))
            message = {"setting": target.setting(**PLAIN), "round": 0, **edges_of(grid)}
            counts = target.ask("count-rows", message)["counts"][COLUMN : COLUMN + len(grid) + 1]
            for place in np.flatnonzero(counts[1:-1]) + 1:
                low, high = 0, len(counts)
                while (middle := low + (high - low) // 2) != place:
                    low, high = (low, middle) if place < middle else (middle, high)
                if high - low <= 2:
                    guesses.append(float(grid[place - 1 : place + 1].mean()))
    return judge(target, guesses, COLUMN)


def vanishing_hessians(target: Target) -> Recovered:
    """`train-trees` after a tree that is sure but in a narrow leaf: the sum of hessians says who is in it."""
    target.prepare()
    setting = target.setting(**PLAIN)
    how = growing_of(json.loads(setting)["model"])
    assert how is not None
    sure = 5.0
    nobody = 1.5 * ROWS * np.exp(-sure) / (1 + np.exp(-sure)) ** 2

    def occupied(low: float, high: float) -> bool:
        w = np.zeros(size(how.shape.parts), dtype=np.float32)
        forest = Forest.of(w, how.shape)
        forest.feature[0, 0, [0, 2]] = COLUMN + 1
        forest.threshold[0, 0, [0, 2]] = low, high
        forest.value[0, 0, 2], forest.base_score[-1] = sure, -sure
        message = {"setting": setting, "round": 2, "level": 0, "w": padded(w), "coalition": [NAME, "ghost"]}
        reply = target.ask("train-trees", {**message, "training": f"{low}", **edges_of(np.zeros(0))})
        return float(reply["sums"][0, 0, 1]) > nobody

    return judge(target, hunt(occupied), COLUMN)


def size(parts: list[tuple[str, tuple[int, ...]]]) -> int:
    """Return how many numbers the parts of a forest have."""
    return sum(int(np.prod(sides)) for _, sides in parts)


def padded(w: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return weights as messages have them: one model, filled up with zeros."""
    return np.concatenate([w, np.zeros(-len(w) % 16, dtype=np.float32)])[None]


ATTACKS = {
    attack.__name__: attack for attack in (fine_edges, walked_edges, narrow_leaves, settled_cells, vanishing_hessians)
}
