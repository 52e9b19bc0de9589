"""Train again only where something changed: a coalition goes on from its saved model, all other models stay."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.training import TrainingResult, retrain
from fedcollab.training.arrays import flatten, split_flat
from fedcollab.training.history import History
from fedcollab.training.trees.forest import BASE, TREES

__all__ = ["accuracies", "checksums", "merged", "retrain", "room", "with_room"]

Weights = NDArray[np.float32]


def merged(
    result: TrainingResult,
    parts: Sequence[TrainingResult],
    order: Sequence[str],
    coalitions: Sequence[Sequence[str]],
) -> TrainingResult:
    """Return a training result with some coalitions replaced by newly trained ones; all other rows are the same bytes.

    Parameters
    ----------
    result : TrainingResult
        The earlier result.
    parts : sequence of TrainingResult
        New results, one for each coalition that was trained again.
    order : sequence of str
        The clients of the merged result.
    coalitions : sequence of sequences of str
        Its coalitions; one that is in no part keeps the model that its members had.
    """
    most = max(room(each) for each in (result, *parts))
    result, *parts = (with_room(each, most) for each in (result, *parts))
    sources = [next((part for part in parts if set(part.names) == set(members)), result) for members in coalitions]
    whose = {name: source for source, members in zip(sources, coalitions, strict=True) for name in members}
    models: dict[str, Any] = {}
    if "last" in result.models:
        models["last"] = np.stack(
            [_model(source, members[0]) for source, members in zip(sources, coalitions, strict=True)]
        )
    if "personal" in result.models:
        models["personal"] = np.stack([whose[name].models["personal"][whose[name].names.index(name)] for name in order])
    first = max((int(row["round"]) for row in result.history), default=0)
    rows = [row for row in result.history if row["client"] in order]
    for part in parts:
        label = next(k for k, members in enumerate(coalitions) if set(members) == set(part.names))
        rows += [{**row, "round": first + int(row["round"]), "coalition": label} for row in part.history]
    return replace(
        result,
        names=tuple(order),
        coalitions=[list(members) for members in coalitions],
        measures=_columns(whose, order, "measures"),
        personal=_columns(whose, order, "personal") if result.personal else {},
        history=History(rows),
        models=models,
        cost={key: value + sum(part.cost.get(key, 0) for part in parts) for key, value in result.cost.items()},
        stopped={
            label: source.stopped[_label(source, members[0])]
            for label, (source, members) in enumerate(zip(sources, coalitions, strict=True))
            if _label(source, members[0]) in source.stopped
        },
        rounds=[source.rounds[_label(source, members[0])] for source, members in zip(sources, coalitions, strict=True)],
        averaged=[
            source.averaged[_label(source, members[0])] for source, members in zip(sources, coalitions, strict=True)
        ],
        retrained={name: whose[name].training_of(name) for name in order if whose[name] is not result}
        | {name: which for name, which in result.retrained.items() if whose.get(name) is result},
        held_out={name: whose[name].held_out[name] for name in order if name in whose[name].held_out},
        failures=[*result.failures, *((first + at, name, why) for part in parts for at, name, why in part.failures)],
    )


def room(result: TrainingResult) -> int:
    """Return for how many rounds of trees a result's models have room; 0 for models that are no trees."""
    return result.layout[0][1][0] if result.model.get("name") == TREES and result.layout else 0


def with_room(result: TrainingResult, rounds: int) -> TrainingResult:
    """Return a result whose trees have room for so many rounds: those that were not trained add nothing.

    Parameters
    ----------
    result : TrainingResult
        The result; one of models that are no trees is returned as it is.
    rounds : int
        At least as many as there is room for.
    """
    more = rounds - room(result)
    if not more or not result.models:
        return result
    wider = [(name, shape if name == BASE else (rounds, *shape[1:])) for name, shape in result.layout]
    models = {
        which: np.stack(
            [
                flatten(
                    {
                        name: part if name == BASE else np.pad(part, [(0, more), (0, 0), (0, 0)])
                        for name, part in split_flat(row, result.layout).items()
                    },
                    wider,
                )
                for row in rows
            ]
        )
        for which, rows in result.models.items()
    }
    size = sum(math.prod(shape) for _, shape in wider)
    model = {**result.model, "options": {**result.model["options"], "rounds": rounds}, "parameters": size}
    return replace(result, models=models, layout=wider, model=model)


def checksums(result: TrainingResult) -> dict[str, str]:
    """Return the SHA-256 of the model that each client uses: its coalition's, and its own where it has one."""
    found = {}
    for position, name in enumerate(result.names):
        digest = hashlib.sha256(_model(result, name).tobytes())
        if "personal" in result.models:
            digest.update(result.models["personal"][position].tobytes())
        found[name] = digest.hexdigest()
    return found


def accuracies(result: TrainingResult) -> dict[str, float]:
    """Return each client's reported accuracy, by name."""
    return dict(zip(result.names, result.reported.tolist(), strict=True))


def _label(result: TrainingResult, name: str) -> int:
    """Return the position of a client's coalition."""
    return next(label for label, members in enumerate(result.coalitions) if name in members)


def _model(result: TrainingResult, name: str) -> Weights:
    """Return the flat weights of the model of a client's coalition."""
    row: Weights = result.models["last"][_label(result, name)]
    return row


def _columns(whose: Mapping[str, TrainingResult], order: Sequence[str], kind: str) -> dict[str, Any]:
    """Return the measures of all clients in `order`, each from the result that it is in now."""
    found: dict[str, Any] = {}
    for key in whose[order[0]].scores.measures:
        values = [getattr(whose[name], kind).get(key) for name in order]
        rows = [whose[name].names.index(name) for name in order]
        if all(value is not None for value in values):
            found[key] = np.array([float(value[row]) for value, row in zip(values, rows, strict=True)])
    return found
