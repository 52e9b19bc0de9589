"""XGBoost's own JSON: trees written so that the library loads them, and a booster of the library made from them.

The file's base score is a probability for two classes, a margin otherwise, as the library has it. The library keeps
probabilities from 1e-6 to 1 - 1e-6, as float32, and passes over the base score of a model without trees: what a
probability cannot say is added to the first tree's leaves, and there is always a first tree.

To write the file nothing of the library is needed; `booster_of` imports it (`pip install 'fedcollab[trees]'`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedcollab.errors import InputError
from fedcollab.training.trees.forest import Forest, Shape
from fedcollab.training.trees.objectives import objective_of

#: the version of XGBoost whose format this is
VERSION = [3, 1, 0]
#: the parent of a root
NO_PARENT = 2147483647
#: up to which margin the base score of two classes is as exact as a probability in float32
MOST_BASE = 5.0


def to_json(forest: Forest, shape: Shape, features: int) -> str:
    """Return trees as XGBoost saves them.

    Parameters
    ----------
    forest : Forest
        The trees.
    shape : Shape
        How large the forest is.
    features : int
        The number of features.
    """
    rounds, classes, base = max(1, forest.rounds), shape.classes, forest.base
    if classes == 2:
        bounded = np.clip(base, -MOST_BASE, MOST_BASE)
        base, rest = 1 / (1 + np.exp(-bounded)), base - bounded
        forest = replace(forest, value=forest.value.copy())
        forest.value[0] += rest
    trees = [
        _tree(forest, position, tree, position * shape.trees + tree, features)
        for position in range(rounds)
        for tree in range(shape.trees)
    ]
    objective = objective_of(classes).name
    several = classes > 2
    model = {
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
        "iteration_indptr": [shape.trees * position for position in range(rounds + 1)],
        "tree_info": list(range(shape.trees)) * rounds,
        "trees": trees,
        "cats": {"enc": [], "feature_segments": [], "sorted_idx": []},
    }
    parameters = {"softmax_multiclass_param": {"num_class": str(classes)}}
    learner = {
        "attributes": {},
        "feature_names": [],
        "feature_types": [],
        "gradient_booster": {"model": model, "name": "gbtree"},
        "learner_model_param": {
            "base_score": "[" + ",".join(f"{value:.9E}" for value in base) + "]",
            "boost_from_average": "1",
            "num_class": str(classes if several else 0),
            "num_feature": str(features),
            "num_target": "1",
        },
        "objective": {
            "name": objective,
            **(parameters if several else {"reg_loss_param": {"scale_pos_weight": "1"}}),
        },
    }
    return json.dumps({"learner": learner, "version": VERSION})


def _tree(forest: Forest, position: int, tree: int, number: int, features: int) -> dict[str, Any]:
    """Return one tree: its nodes level by level, without those below a leaf."""
    feature, threshold, value = (part[position, tree] for part in (forest.feature, forest.threshold, forest.value))
    inner = len(feature)
    depth = (inner + 1).bit_length() - 1
    order, parents = [0], [NO_PARENT]
    left, right, split, conditions = [], [], [], []
    for place, node in enumerate(order):  # grows while it is read
        if node < inner and feature[node] > 0:
            left.append(len(order))
            right.append(len(order) + 1)
            order += [2 * node + 1, 2 * node + 2]
            parents += [place, place]
            split.append(int(feature[node]) - 1)
            conditions.append(float(threshold[node]))
        else:
            left.append(-1)
            right.append(-1)
            split.append(0)
            level = (node + 1).bit_length() - 1
            conditions.append(float(value[(node + 1 - 2**level) << (depth - level)]))
    zeros = [0] * len(order)
    return {
        "base_weights": [float(each) if side < 0 else 0.0 for each, side in zip(conditions, left, strict=True)],
        "categories": [],
        "categories_nodes": [],
        "categories_segments": [],
        "categories_sizes": [],
        "default_left": zeros,
        "id": number,
        "left_children": left,
        "loss_changes": [0.0] * len(order),
        "parents": parents,
        "right_children": right,
        "split_conditions": conditions,
        "split_indices": split,
        "split_type": zeros,
        "sum_hessian": [0.0] * len(order),
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(features),
            "num_nodes": str(len(order)),
            "size_leaf_vector": "1",
        },
    }


def of_arrays(arrays: Mapping[str, Any], shape: Shape) -> Forest:
    """Return a forest from arrays by parameter name, as `TrainingResult.weights` gives them."""
    return Forest(*(np.asarray(arrays[name], dtype=np.float32) for name, _ in shape.parts))


def booster_of(text: str) -> Any:
    """Return the library's booster of trees in its JSON.

    Parameters
    ----------
    text : str
        What `to_json` returned.

    Returns
    -------
    xgboost.Booster
        It scores prepared samples (`Schema.features`).

    Raises
    ------
    InputError
        If the library is not installed.
    """
    try:
        import xgboost
    except ImportError:
        raise InputError("XGBoost is not installed: pip install 'fedcollab[trees]'") from None
    booster = xgboost.Booster()
    booster.load_model(bytearray(text.encode()))
    return booster
