"""`load_model`: a trained model from its files, ready to predict on raw samples.

What a model says of a row is decided in one place, `answers_of`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedcollab.data.rows import fit_rows
from fedcollab.data.samples import Features
from fedcollab.data.schema import Schema
from fedcollab.errors import InputError
from fedcollab.training.arrays import flatten
from fedcollab.training.losses import CROSS_ENTROPY
from fedcollab.training.models import MODELS, Factory, Network, layout_of, name_model
from fedcollab.training.result import TrainingResult
from fedcollab.training.trees.files import booster_of, of_arrays, to_json
from fedcollab.training.trees.forest import ForestModule, check_forest

#: rows that go through a model at once: images would else need much memory
AT_ONCE = 1000
#: the column of `answers_of` with what is predicted
PREDICTED = "predicted"


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

    def outputs(self, x: Features) -> NDArray[np.float32]:
        """Return what the module gives for raw samples, one row for each.

        Parameters
        ----------
        x : array or DataFrame
            Raw samples, as clients have them; further columns of a table are passed over.

        Raises
        ------
        InputError
            If they do not fit what the model was trained on.
        """
        rows = fit_rows(x, self.schema).x
        with np.errstate(over="ignore"):  # refused below
            inputs = self.schema.features(rows)
        finite = np.isfinite(inputs).reshape(len(inputs), -1).all(axis=1)
        if not finite.all():
            raise InputError(f"row {int(finite.argmin()) + 1} of `x` has a value that is too large for a model")
        parts = torch.split(torch.from_numpy(inputs), AT_ONCE)
        with torch.no_grad():
            found: NDArray[np.float32] = torch.cat([self.module(part) for part in parts]).numpy()
        answered = np.isfinite(found).reshape(len(found), -1).all(axis=1)
        if not answered.all():
            raise InputError(f"row {int(answered.argmin()) + 1} of `x` gets no number from the model: it has diverged")
        return found

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

        Raises
        ------
        InputError
            If the model is one of a numeric target.
        """
        if not self.schema.classes:
            raise InputError("a model of a numeric target has no classes, and no probabilities: use `predict`")
        return _probabilities(self.outputs(x))

    def xgboost_json(self) -> str:
        """Return trees as XGBoost saves them, for `xgboost.Booster`: they take prepared samples (`Schema.features`).

        Raises
        ------
        InputError
            If the model is none of trees.
        """
        if not isinstance(self.module, ForestModule):
            raise InputError("the model has no trees; XGBoost's format is for `model` 'xgboost'")
        parts = {name: value.detach().numpy() for name, value in self.module.named_parameters()}
        return to_json(of_arrays(parts, self.module.shape), self.module.shape, math.prod(self.schema.shape))

    def booster(self) -> Any:
        """Return trees as the library's `xgboost.Booster` (`pip install 'fedcollab[trees]'`).

        Raises
        ------
        InputError
            If the model is none of trees, or the library is not installed.
        """
        return booster_of(self.xgboost_json())

    def predict(self, x: Features) -> NDArray[Any]:
        """Return the label, or the numeric target in its own units, of each raw sample."""
        return self.answers(x)[PREDICTED]

    def answers(self, x: Features) -> dict[str, NDArray[Any]]:
        """Return all that the model says of raw samples, column by column, as `fedcollab predict` writes it.

        Parameters
        ----------
        x : array or DataFrame
            Raw samples, as clients have them.

        Returns
        -------
        dict of arrays
            "predicted", the label of each sample or its numeric target; and "probability_CLASS" for each class.
        """
        return answers_of(self.outputs(x), self.schema)


def answers_of(outputs: NDArray[np.float32], schema: Schema) -> dict[str, NDArray[Any]]:
    """Return what the outputs of a model say of each row, column by column.

    Parameters
    ----------
    outputs : array
        One row for each sample: a score for each class, or the numeric target.
    schema : Schema
        Names the classes, or has the units of the target.

    Examples
    --------
    >>> found = answers_of(np.array([[0.0, 0.0, 5.0]], dtype=np.float32), Schema(("ill", "well", "unsure"), (2,)))
    >>> list(found), str(found["predicted"][0]), round(float(found["probability_unsure"][0]), 3)
    (['predicted', 'probability_ill', 'probability_well', 'probability_unsure'], 'unsure', 0.987)
    """
    if not schema.classes:
        return {PREDICTED: schema.in_units(outputs[:, 0])}
    probabilities = _probabilities(outputs)
    columns = {f"probability_{label}": probabilities[:, place] for place, label in enumerate(schema.classes)}
    return {PREDICTED: np.array(schema.classes)[probabilities.argmax(1)], **columns}


def _probabilities(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the probability of each class, given its score."""
    found: NDArray[np.float32] = torch.softmax(torch.from_numpy(scores), 1).numpy()
    return found


def load_model(
    path: str | Path | TrainingResult,
    *,
    client: str | None = None,
    coalition: int | None = None,
    which: str | None = None,
    model: str | Factory | nn.Module | None = None,
) -> TrainedModel:
    """Load one model of a training result.

    Parameters
    ----------
    path : str, Path or TrainingResult
        The result; or what its `save` wrote, the folder that `train` wrote to, or a run directory: then its training in
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
        With `predict`, `predict_proba` and `answers`, which is both.

    Raises
    ------
    InputError
        If the files are broken, the model is unknown here or has other parameters, or the client's own model stayed at
        its silo.

    Examples
    --------
    >>> load_model("runs/hospitals", client="north").predict(x)     # doctest: +SKIP
    >>> load_model("runs/hospitals/training/local", client="north").predict(x)     # doctest: +SKIP
    """
    result = path if isinstance(path, TrainingResult) else TrainingResult.load(path)
    if which is None:
        which = "personal" if client is not None and result.personal else "last"
        if which == "personal" and which not in result.models and client in result.names:
            raise InputError(
                f"the own model of `{client}` stayed at its silo: there, `fedcollab silo predict FILE` uses it "
                "(here, `which='last'` is the model that its coalition shares)"
            )
    if client is None and coalition is None and len(result.coalitions) == 1:
        coalition = 0
    arrays = result.weights(client=client, coalition=coalition, which=which)
    name = name_model(model) if model is not None else str(result.model["name"])
    if name not in MODELS:
        raise InputError(f"the model '{name}' is not registered here; give its factory as `model`")
    text = Network.describe(
        name,
        result.model["options"],
        result.model["shape"],
        int(result.model["classes"]),
        result.model.get("loss", CROSS_ENTROPY),
    )
    known = [(key, value.shape) for key, value in arrays.items()]
    layout = layout_of(text)  # first: a network that does not fit might take all memory
    if [(key, tuple(shape)) for key, shape in layout] != known:
        raise InputError(f"the model '{name}' has other parameters than those of this training")
    network = Network(text)
    module = network.point(torch.from_numpy(flatten(arrays, network.layout))).eval()
    if isinstance(module, ForestModule):
        check_forest(of_arrays(arrays, module.shape), math.prod(result.model["shape"]))
    return TrainedModel(module, Schema.of(result.schema))
