"""What most cells compute: label counts, distances and trainings, from a cell's settings to plain values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from fedcollab import baselines, distances, federation, files, scenarios, training
from fedcollab.reproduce.cells import Result, Scratch

DATA = ("scenario", "dataset", "options", "seed")
TRAINING = ("model", "model_options", "rounds", "lr", "batch_size", "local_epochs", "seed")


def make_scenario(settings: Mapping[str, Any], features: str | None = None) -> scenarios.Scenario:
    """Return the scenario of a cell; with `features` the clients have an encoder's features in place of images.

    The last two are kept in memory, since cells of one seed follow each other.
    """
    return _make_scenario(files.dumps({key: settings[key] for key in DATA}), features)


@lru_cache(maxsize=2)
def _make_scenario(text: str, features: str | None) -> scenarios.Scenario:
    wanted = json.loads(text)
    made = scenarios.make(wanted["scenario"], dataset=wanted["dataset"], seed=wanted["seed"], **wanted["options"])
    if features is None:
        return made
    return replace(made, clients=tuple(federation.encode_clients(made.clients, features, scale=made.scale)))


def training_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those settings of a cell that `train` takes."""
    return {key: settings[key] for key in TRAINING}


def count_labels(settings: Mapping[str, Any], scratch: Scratch) -> Result:
    """Count the training and test samples of each label at each client."""
    made = make_scenario(settings)
    width = int(made.settings["classes"])
    return {
        "names": [client.name for client in made.clients],
        "types": list(made.types),
        "train": [np.bincount(client.y, minlength=width).tolist() for client in made.clients],
        "test": [np.bincount(np.asarray(client.y_test), minlength=width).tolist() for client in made.clients],
    }


def estimate(settings: Mapping[str, Any], scratch: Scratch) -> Result:
    """Estimate the distances between the clients of a scenario."""
    made = make_scenario(settings)
    found = distances.estimate_distances(
        made.clients,
        method=settings["method"],
        seed=settings["seed"],
        scale=made.scale,
        encoder=settings["encoder"],
        **settings["distance_options"],
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


def train(settings: Mapping[str, Any], scratch: Scratch) -> Result:
    """Train a method: an algorithm within `coalitions`, or a clustered baseline with `k` clusters."""
    made, method = make_scenario(settings, features=settings["encoder"]), settings["method"]
    common = {
        **training_settings(settings),
        "seed": settings.get("training_seed", settings["seed"]),
        "scale": made.scale,
        "evaluate_every": max(1, settings["rounds"] // 10),
        "run_dir": scratch.folder,
        "progress": scratch.progress,
    }
    if method in baselines.BASELINES:
        options = settings.get("baseline_options")
        return summary(baselines.run(method, made.clients, k=settings["k"], baseline_options=options, **common))
    return summary(training.train(made.clients, settings["coalitions"], method, stopping="none", **common))


def summary(result: training.TrainingResult) -> Result:
    """Return what a table needs of a training result."""
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
    """Return numbers, rounded, as plain lists."""
    return (np.round(np.asarray(values, dtype=np.float64), digits) + 0.0).tolist()
