"""`load_model`: a trained model from its files, ready to predict on raw samples."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedcollab.data.client import Features
from fedcollab.errors import InputError
from fedcollab.federation.prepare import Schema
from fedcollab.training.models import MODELS, Factory, Network, name_model
from fedcollab.training.result import TrainingResult, flatten


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A module in evaluation mode, and how raw samples become its inputs."""

    module: nn.Module
    schema: Schema

    def predict_proba(self, x: Features) -> NDArray[np.float32]:
        """Probabilities, one column a class in the order of `schema.classes`, of raw samples as clients have them."""
        with torch.no_grad():
            scores: NDArray[np.float32] = torch.softmax(
                self.module(torch.from_numpy(self.schema.features(x))), 1
            ).numpy()
        return scores

    def predict(self, x: Features) -> NDArray[Any]:
        """The label of each raw sample."""
        labels: NDArray[Any] = np.array(self.schema.classes)[self.predict_proba(x).argmax(1)]
        return labels


def load_model(
    path: str | Path,
    *,
    client: str | None = None,
    coalition: int | None = None,
    which: str | None = None,
    model: str | Factory | nn.Module | None = None,
) -> TrainedModel:
    """Load one model of a training result.

    path        what `TrainingResult.save` wrote, or the run directory of `train`
    client      whose model: its personal one where there is one, else its coalition's
    coalition   or which coalition's, by position
    which       "last", "best" or "personal", to choose otherwise
    model       the factory, where training was given one that is not registered under a name
    """
    result = TrainingResult.load(path)
    if which is None:
        which = "personal" if client is not None and "personal" in result.models else "last"
    if client is None and coalition is None and len(result.coalitions) == 1:
        coalition = 0
    arrays = result.weights(client=client, coalition=coalition, which=which)
    name = name_model(model) if model is not None else str(result.model["name"])
    if name not in MODELS:
        raise InputError(f"the model '{name}' is not registered here; give its factory as `model`")
    text = Network.describe(name, result.model["options"], result.model["shape"], int(result.model["classes"]))
    network = Network(text)
    if [(key, tuple(shape)) for key, shape in network.layout] != [(key, value.shape) for key, value in arrays.items()]:
        raise InputError(f"the model '{name}' has other parameters than those in `{path}`")
    module = network.point(torch.from_numpy(flatten(arrays, network.layout))).eval()
    return TrainedModel(module, Schema.from_json(json.dumps(result.schema)))
