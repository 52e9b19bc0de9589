"""The files of a training's result: JSON, models as safetensors, the history, and trees as XGBoost saves them.

Checksums in the JSON file tell whether the others belong to it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from fedcollab import files as artefact
from fedcollab.data.schema import Schema
from fedcollab.errors import InputError
from fedcollab.parsing import MOST_DATA, Finite, complete, names_in, read_bytes
from fedcollab.training.arrays import flatten, split_flat
from fedcollab.training.history import History
from fedcollab.training.losses import CROSS_ENTROPY, LOSSES
from fedcollab.training.scores import SCORES
from fedcollab.training.trees.files import of_arrays, to_json
from fedcollab.training.trees.forest import TREES, growing_of

if TYPE_CHECKING:
    from fedcollab.training.result import TrainingResult

Floats = NDArray[np.float64]


class _Model(TypedDict):
    """What is read again of the model of a result, which may be from anyone."""

    name: str
    options: dict[str, Any]
    shape: list[int]
    classes: int
    loss: NotRequired[str]


class _Settings(TypedDict, total=False):
    """What is read again of the settings of a result."""

    algorithm: str
    options: dict[str, Any]
    rounds: int
    epochs: int
    stopping: str
    averaging: Finite
    keep: list[str] | None


class _Content(TypedDict):
    """What is read again of a result, beside what `TrainingResult` is checked for."""

    method: str
    model: _Model
    schema: dict[str, Any]
    settings: _Settings
    cost: dict[str, Finite]
    training: NotRequired[str]


def write_result(result: TrainingResult, path: str | Path, made: Mapping[str, Any] | None) -> None:
    """Write a result's files.

    Parameters
    ----------
    result : TrainingResult
        The result.
    path, made
        As in `TrainingResult.save`.
    """
    path = _file(path)
    tensors = {
        f"{which}/{row}/{name}": np.ascontiguousarray(value)
        for which, rows in result.models.items()
        for row, flat in enumerate(rows)
        for name, value in split_flat(flat, result.layout).items()
    }
    models = bytes(save_arrays(tensors))
    beside = {".safetensors": models, ".jsonl": result.history.lines()}
    for number, text in enumerate(_trees(result)):
        artefact.write_bytes(path.with_suffix(f".{number}.xgboost.json"), text.encode(), private=True)
    for suffix, written in beside.items():
        artefact.write_bytes(path.with_suffix(suffix), written, private=written is models)
    artefact.write_json(
        path,
        "training",
        {
            "method": result.method,
            "names": list(result.names),
            "coalitions": result.coalitions,
            "assignment": result.assignment,
            "measures": dict(result.measures),
            "personal": dict(result.personal),
            "stopped": {str(key): value for key, value in result.stopped.items()},
            "failures": result.failures,
            "rounds": result.rounds,
            "averaged": result.averaged,
            "held_out": dict(result.held_out),
            "cost": dict(result.cost),
            "settings": dict(result.settings),
            "model": dict(result.model),
            "schema": dict(result.schema),
            "layout": result.layout,
            "models": {which: len(rows) for which, rows in result.models.items()},
            "distances": result.distances,
            "training": result.training,
            "retrained": dict(result.retrained),
            "checksums": {suffix: hashlib.sha256(written).hexdigest() for suffix, written in beside.items()},
        },
        made,
    )


def _trees(result: TrainingResult) -> list[str]:
    """Return the trees of each coalition as XGBoost saves them, where the model is one of trees."""
    if result.model.get("name") != TREES or "last" not in result.models:
        return []
    how = growing_of(json.dumps({key: result.model[key] for key in ("name", "options", "shape", "classes")}))
    assert how is not None
    return [
        to_json(of_arrays(result.weights(coalition=row), how.shape), how.shape, how.features)
        for row in range(len(result.models["last"]))
    ]


def read_result(cls: type[TrainingResult], path: str | Path) -> TrainingResult:
    """Read a result that `write_result` wrote.

    Parameters
    ----------
    cls : type
        `TrainingResult`.
    path : str or Path
        As in `TrainingResult.load`.

    Raises
    ------
    InputError
        If a file is missing, broken or of another kind.
    """
    path = _file(artefact.inside(path, "training.json", "training/coalitions/training.json"))
    content = artefact.read_json(path, "training")
    with complete(path, "training"):
        msgspec.convert(content, _Content)
        layout = [(str(name), tuple(int(side) for side in shape)) for name, shape in content["layout"]]
        sums = dict(content.get("checksums", {}))
        lines = path.with_suffix(".jsonl")
        if lines.exists():
            _check(lines, read_bytes(lines, "a history", MOST_DATA), sums)
        found = cls(
            names=names_in(content),
            coalitions=[list(members) for members in content["coalitions"]],
            measures=_numbers(content["measures"]),
            personal=_numbers(content["personal"]),
            history=History.read(lines) if lines.exists() else History(),
            models=_models(path.with_suffix(".safetensors"), content["models"], layout, sums),
            layout=layout,
            method=content["method"],
            model=content["model"],
            schema=content["schema"],
            settings=content["settings"],
            cost=content["cost"],
            stopped={int(key): value for key, value in content["stopped"].items()},
            failures=[(int(number), name, why) for number, name, why in content["failures"]],
            rounds=[int(number) for number in content.get("rounds", _given(content))],
            averaged=[bool(mean) for mean in content.get("averaged", [False] * len(content["coalitions"]))],
            held_out=_numbers(content.get("held_out", {})),
            distances=None if content["distances"] is None else np.array(content["distances"], dtype=np.float64),
            training=str(content.get("training", "")),
            retrained={str(name): str(which) for name, which in content.get("retrained", {}).items()},
        )
        _check_fits(found)
        return found


def _models(
    path: Path, counts: Mapping[str, int], layout: list[tuple[str, tuple[int, ...]]], sums: Mapping[str, str]
) -> dict[str, NDArray[np.float32]]:
    """Read the models of a result: `counts` rows of each kind."""
    if not counts:
        return {}
    content = read_bytes(path, f"the models of `{path.with_suffix('.json').name}`", MOST_DATA)
    try:
        tensors = load_arrays(content)
        _check(path, content, sums)
        if any(tensors[f"{which}/0/{name}"].shape != shape for which in counts for name, shape in layout):
            raise KeyError("its arrays have other shapes than the result says")
        wide = sum(math.prod(shape) for _, shape in layout)
        if min(map(int, counts.values())) < 0 or 4 * wide * sum(map(int, counts.values())) > len(content):
            raise KeyError("it has fewer models than the result")
        if not all(np.isfinite(value).all() for value in tensors.values()):
            raise KeyError("it has weights that are not finite")
        return {
            which: np.stack(
                [
                    flatten({name: tensors[f"{which}/{row}/{name}"] for name, _ in layout}, layout)
                    for row in range(count)
                ]
            )
            for which, count in counts.items()
        }
    except (SafetensorError, KeyError) as error:
        raise InputError(f"`{path}` cannot be read as the models of this result: {error}") from None


def _check_fits(found: TrainingResult) -> None:
    """Check that what a file says of clients and coalitions fits together; `complete` makes one line of the error."""
    count = len(found.names)
    if not count or sorted(name for members in found.coalitions for name in members) != sorted(found.names):
        raise ValueError("its coalitions do not hold each client once")
    for kind, columns in (("measures", found.measures), ("personal", found.personal)):
        for key, values in columns.items():
            if values.dtype.kind not in "biuf" or values.shape != (count,):
                raise ValueError(f"`{kind}` `{key}` is not one number a client")
    if found.task not in SCORES or not {found.scores.measures[0], "loss"} <= found.measures.keys():
        raise ValueError("`measures` lacks accuracy or loss")
    for each in (found.rounds, found.averaged):
        if len(each) != len(found.coalitions):
            raise ValueError("`rounds` or `averaged` is not one for each coalition")
    try:
        schema = Schema.from_json(json.dumps(found.schema))
    except InputError as error:
        raise ValueError(f"`schema`: {error}") from None
    loss = LOSSES.get(found.model.get("loss", CROSS_ENTROPY))
    if (tuple(found.model["shape"]), found.model["classes"]) != (schema.shape, schema.outputs):
        raise ValueError("`model` and `schema` have other shapes or classes")
    if loss is None or loss.task != schema.task:
        raise ValueError(f"`model` has a loss that is not for a {schema.task}")
    for key, rows in found.models.items():
        if len(rows) != (count if key == "personal" else len(found.coalitions)):
            raise ValueError(f"`models` has {len(rows)} of {key!r}")


def _check(path: Path, content: bytes, sums: Mapping[str, str]) -> None:
    """Refuse a file that is not what the result was saved with; results of earlier versions have no checksums."""
    wanted = sums.get(path.suffix)
    if wanted is not None and hashlib.sha256(content).hexdigest() != wanted:
        raise InputError(
            f"`{path}` is damaged, or is not of this training: its checksum in `{path.with_suffix('.json').name}` does "
            "not fit. Restore it, or train again"
        )


def _numbers(columns: Mapping[str, Any]) -> dict[str, Floats]:
    """Return columns read from JSON as arrays, with NaN for null."""
    return {key: np.array([np.nan if v is None else v for v in values]) for key, values in columns.items()}


def _given(content: Mapping[str, Any]) -> list[int]:
    """Return the rounds of each coalition of a result that was saved when all of them trained equally long."""
    return [int(content["settings"].get("rounds", 0))] * len(content["coalitions"])


def _file(path: str | Path) -> Path:
    """Return the path of a result; a folder means training.json in it."""
    path = Path(path)
    return path / "training.json" if path.is_dir() or not path.suffix else path
