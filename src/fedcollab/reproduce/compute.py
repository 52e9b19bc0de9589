"""What the kinds of cells compute: from the cell's settings, at a desk for long work, its result as plain values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcollab import files as artefact
from fedcollab.reproduce.cells import Cell, Desk, Result

if TYPE_CHECKING:
    from fedcollab.data import ClientData
    from fedcollab.training import TrainingResult
    from fedcollab.wire import Runtime

#: where each kind's function is
KINDS = {
    "counts": "fedcollab.reproduce.compute:counts",
    "distances": "fedcollab.reproduce.compute:distances",
    "training": "fedcollab.reproduce.compute:training",
    "joining": "fedcollab.reproduce.new_client:compute",
    "descents": "fedcollab.reproduce.convergence:compute",
    "advice": "fedcollab.reproduce.heart:advise",
    "partitions": "fedcollab.reproduce.heart:train_all",
}
DATA = ("scenario", "dataset", "options", "seed")
TRAINING = ("model_options", "rounds", "lr", "batch_size", "local_epochs", "seed")


def compute(cell: Cell, desk: Desk) -> Result:
    """The cell's result, computed here and now."""
    module, name = KINDS[cell.kind].split(":")
    function: Callable[[Mapping[str, Any], Desk], Result] = getattr(import_module(module), name)
    return function(cell.plain(), desk)


def federation(settings: Mapping[str, Any], *, features: str | None = None, encoder: str | None = None) -> Runtime:
    """The clients of a cell, as images or as an encoder's `features`; distances see them through `encoder`.

    Those of the last calls are kept, since cells of one seed follow each other.
    """
    return _federation(artefact.dumps({key: settings[key] for key in DATA}), features, encoder)


@lru_cache(maxsize=2)
def _federation(text: str, features: str | None, encoder: str | None) -> Runtime:
    wanted = json.loads(text)
    return connect(clients(wanted, features), wanted["seed"], encoder)


def clients(settings: Mapping[str, Any], features: str | None = None) -> list[ClientData]:
    """The clients that the scenario makes; with `features` each has an encoder's features in place of images."""
    from fedcollab import scenarios

    made = scenarios.make(
        settings["scenario"], dataset=settings["dataset"], seed=settings["seed"], **settings["options"]
    )
    if features is None:
        return list(made.clients)
    encoded: list[ClientData] = import_module("fedcollab.encoders").encode_clients(made.clients, features, scale="none")
    return encoded


def connect(members: Sequence[ClientData], seed: int, encoder: str | None = None) -> Runtime:
    """A federation over clients as scenarios make them: images are normalised already."""
    from fedcollab.data.client import is_table
    from fedcollab.federation.prepare import federate

    return federate(members, scale="auto" if is_table(members[0].x) else "none", seed=seed, encoder=encoder)


def counts(settings: Mapping[str, Any], desk: Desk) -> Result:
    """How many training and test samples of each label the clients have."""
    from fedcollab import scenarios

    made = scenarios.make(
        settings["scenario"], dataset=settings["dataset"], seed=settings["seed"], **settings["options"]
    )
    width = int(made.settings["classes"])
    return {
        "names": [client.name for client in made.clients],
        "types": list(made.types),
        "train": [np.bincount(client.y, minlength=width).tolist() for client in made.clients],
        "test": [np.bincount(np.asarray(client.y_test), minlength=width).tolist() for client in made.clients],
    }


def distances(settings: Mapping[str, Any], desk: Desk) -> Result:
    """Distances between the clients of a scenario."""
    from fedcollab.distances import estimate_distances

    runtime = federation(settings, encoder=settings["encoder"])
    found = estimate_distances(
        runtime, method=settings["method"], seed=settings["seed"], **settings["distance_options"]
    )
    return {
        "names": list(found.names),
        "quantities": found.quantities,
        "raw": rounded(found.raw),
        "stderr": None if found.stderr is None else rounded(found.stderr),
        "method": found.method,
        "rounds": found.cost.get("rounds"),
        "bytes": found.cost.get("bytes"),
    }


def training(settings: Mapping[str, Any], desk: Desk) -> Result:
    """Train a method: an algorithm within `coalitions`, or a clustered baseline with `k` clusters."""
    from fedcollab import baselines
    from fedcollab.training import train

    runtime = federation(settings, features=settings["encoder"])
    common: dict[str, Any] = {key: settings[key] for key in TRAINING}
    common |= {"model": settings["model"], "evaluate_every": max(1, settings["rounds"] // 10)}
    common |= {"seed": settings.get("training_seed", settings["seed"])}
    common |= {"run_dir": desk.folder, "progress": desk.note}
    method = settings["method"]
    if method in baselines.BASELINES:
        options = settings.get("baseline_options")
        return summary(baselines.run(method, runtime, k=settings["k"], baseline_options=options, **common))
    return summary(train(runtime, settings["coalitions"], method, **common))


def summary(result: TrainingResult) -> Result:
    """What a table needs of a training result."""
    personal = result.personal_accuracy is not None
    measures = result.personal if personal else result.measures
    rounds, curve = result.history.curve("personal_accuracy" if personal else "accuracy")
    return {
        "names": list(result.names),
        "coalitions": result.coalitions,
        **{key: rounded(measures[key]) for key in ("accuracy", "balanced_accuracy", "auc")},
        "curve": [[int(number), round(float(value), 5)] for number, value in zip(rounds, curve, strict=True)],
        "distances": None if result.distances is None else rounded(result.distances),
        "cost": dict(result.cost),
        "stopped": {str(label): why for label, why in result.stopped.items()},
        "failures": len(result.failures),
        "weights_from": result.model["weights_from"],
    }


def rounded(values: Any, digits: int = 5) -> Any:
    """Numbers with as many digits as mean something."""
    return (np.round(np.asarray(values, dtype=np.float64), digits) + 0.0).tolist()
