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
from fedcollab.data.schema import Schema
from fedcollab.errors import InputError
from fedcollab.training.models import MODELS, Factory, Network, name_model
from fedcollab.training.result import TrainingResult, flatten


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A trained model that predicts on raw samples.

    Parameters
    ----------
    module : torch.nn.Module
        The model, in evaluation mode.
    schema : Schema
        How raw samples become the module's inputs.
    """

    module: nn.Module
    schema: Schema

    def predict_proba(self, x: Features) -> NDArray[np.float32]:
        """Return each class's probability.

        Parameters
        ----------
        x : array or DataFrame
            Raw samples, as clients have them.

        Returns
        -------
        array
            One row for each sample, one column for each class in the order of `schema.classes`.
        """
        with torch.no_grad():
            scores: NDArray[np.float32] = torch.softmax(
                self.module(torch.from_numpy(self.schema.features(x))), 1
            ).numpy()
        return scores

    def predict(self, x: Features) -> NDArray[Any]:
        """Return the label of each raw sample."""
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

    Parameters
    ----------
    path : str or Path
        What `TrainingResult.save` wrote, the folder that `train` wrote to, or a run directory: then its training in
        coalitions.
    client : str, optional
        Whose model: its personal one where there is one, else its coalition's.
    coalition : int, optional
        Or which coalition's, by position; neither is needed where there is only one.
    which : str, optional
        "last" or "personal", to choose otherwise.
    model : str, callable or torch.nn.Module, optional
        The model, where training was given one that is not registered under a name here.

    Returns
    -------
    TrainedModel
        With `predict` and `predict_proba`.

    Raises
    ------
    InputError
        If the files are broken, or the model is unknown here or has other parameters.

    Examples
    --------
    >>> load_model("runs/hospitals", client="north").predict(x)     # doctest: +SKIP
    >>> load_model("runs/hospitals/training/local", client="north").predict(x)     # doctest: +SKIP
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
