"""What training leaves: every client's measures, who trained with whom, the models, and how it went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab import metrics, uncertainty
from fedcollab.display import display
from fedcollab.errors import InputError, choose
from fedcollab.training.arrays import split_flat
from fedcollab.training.history import History
from fedcollab.training.result_files import read_result, write_result
from fedcollab.training.scores import SCORES, Scores

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """The result of a training: the measures of the last round in the order of `names`, and all that belongs to them.

    Parameters
    ----------
    names : tuple of str
        The clients, in the order in which they were given.
    coalitions : list of lists of str
        Who trained with whom.
    measures : mapping of arrays
        accuracy, loss, balanced_accuracy and auc on each client's test split, of its coalition's last model (of a
        numeric target r2, loss, and rmse and mae in its units); the standard error of the loss (`loss_stderr`) and the
        number of test samples (`samples`).
    personal : mapping of arrays
        The same for each client's own model, where the algorithm personalises; else empty.
    history : History
        One row for each round and client.
    models : mapping of arrays
        Flat weights: "last" with one row for each coalition, "personal" with one for each client.
    layout : list of (str, tuple of int)
        Name and shape of each part of a row of `models`.
    method : str
        The algorithm, or the clustered baseline.
    model : mapping
        Name, options, shape and classes of the model.
    schema : mapping
        How raw samples become the model's inputs.
    settings : mapping
        What was asked.
    cost : mapping
        Calls, bytes and seconds.
    stopped : mapping
        Coalitions (by position) whose training broke off, and why.
    failures : list of (round, client, why)
        Every time that a client failed to answer.
    rounds : list of int
        How many rounds each coalition trained.
    averaged : list of bool
        Whether each coalition uses the mean over rounds rather than the last round's model.
    held_out : mapping of arrays
        Where rounds were chosen: each client's mean loss on rows that a model had not seen, after 0, 1, ... rounds.
    distances : array, optional
        N x N in the order of `names`, where a clustered baseline has one.
    training : str
        Which training this is (see `checkpoint.identity`); empty for results of earlier versions.
    retrained : mapping of str
        For clients that have trained again since: which training their model is of.

    Examples
    --------
    >>> from fedcollab import train
    >>> x = np.arange(40.0)[:, None] % 20
    >>> halves = {"north": (x[:20], x[:20, 0] > 9), "south": (x[20:], x[20:, 0] > 9)}
    >>> result = train(halves, "local", model="logistic", rounds=2, stopping="none")
    >>> result.coalitions, result.rounds, result.accuracy.shape
    ([['north'], ['south']], [2, 2], (2,))
    """

    names: tuple[str, ...]
    coalitions: list[list[str]]
    measures: Mapping[str, Floats]
    personal: Mapping[str, Floats] = field(default_factory=dict)
    history: History = field(default_factory=History)
    models: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    layout: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    method: str = "fedavg"
    model: Mapping[str, Any] = field(default_factory=dict)
    schema: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    cost: Mapping[str, Any] = field(default_factory=dict)
    stopped: Mapping[int, str] = field(default_factory=dict)
    failures: list[tuple[int, str, str]] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    averaged: list[bool] = field(default_factory=list)
    held_out: Mapping[str, Floats] = field(default_factory=dict)
    distances: Floats | None = None
    training: str = ""
    retrained: Mapping[str, str] = field(default_factory=dict)

    def training_of(self, name: str) -> str:
        """Return which training the model of a client is of.

        Parameters
        ----------
        name : str
            The client.
        """
        return self.retrained.get(name, self.training)

    @property
    def assignment(self) -> NDArray[np.int64]:
        """Each client's position in `coalitions`."""
        where = {name: label for label, members in enumerate(self.coalitions) for name in members}
        return np.array([where[name] for name in self.names])

    @property
    def task(self) -> str:
        """What the models predict: "classification" or "regression"."""
        return str(self.schema.get("task", "classification"))

    @property
    def scores(self) -> Scores:
        """What is measured in this task."""
        return SCORES[self.task]

    @property
    def accuracy(self) -> Floats:
        """Each client's accuracy with its coalition's model; of a numeric target R2, which stands in its place."""
        return self.measures[self.scores.measures[0]]

    @property
    def r2(self) -> Floats:
        """Each client's R2: the share of its target's variance that its coalition's model explains."""
        return self.measures["r2"]

    @property
    def rmse(self) -> Floats:
        """Each client's root mean squared error with its coalition's model, in the target's units."""
        return self.measures["rmse"]

    @property
    def mae(self) -> Floats:
        """Each client's mean absolute error with its coalition's model, in the target's units."""
        return self.measures["mae"]

    @property
    def loss(self) -> Floats:
        """Each client's mean loss on its test split, with its coalition's model."""
        return self.measures["loss"]

    @property
    def balanced_accuracy(self) -> Floats:
        """Each client's balanced accuracy on its test split, with its coalition's model."""
        return self.measures["balanced_accuracy"]

    @property
    def auc(self) -> Floats:
        """Each client's area under the ROC curve; NaN where its test split has one class."""
        return self.measures["auc"]

    @property
    def personal_accuracy(self) -> Floats | None:
        """Each client's accuracy with its own model, where the algorithm personalises."""
        return self.personal.get(self.scores.measures[0])

    @property
    def used(self) -> Mapping[str, Floats]:
        """The measures of the model that each client would use: its personal one where there is one."""
        return self.personal or self.measures

    @property
    def reported_loss(self) -> Floats:
        """The loss of the model that each client would use: its own where there is one, else the coalition's."""
        return self.used["loss"]

    @property
    def reported(self) -> Floats:
        """The accuracy (or R2) that the paper's tables report: personal where there is one, else the coalition's."""
        return self.used[self.scores.measures[0]]

    def summary(self, local: TrainingResult | None = None, everyone: TrainingResult | None = None) -> dict[str, float]:
        """Compare with training alone and with training with everyone.

        Parameters
        ----------
        local, everyone : TrainingResult, optional
            The results of the same clients trained alone, and all together.

        Returns
        -------
        dict
            The mean of the reported accuracy and, against the given results, IPR, RSD and mean gains.

        Raises
        ------
        InputError
            If the results are of different clients.
        """
        return metrics.summary(self.reported, _aligned(self, local), _aligned(self, everyone))

    def verdicts(self, local: TrainingResult, everyone: TrainingResult | None = None) -> list[str]:
        """Return a sentence for every client that says what training with others gained it, and whether that is clear.

        The intervals are those of different test samples, which are wide; `compare` gives narrower ones.

        Parameters
        ----------
        local : TrainingResult
            The result of the same clients trained alone.
        everyone : TrainingResult, optional
            The result of all of them trained together.

        Raises
        ------
        InputError
            If the results are of different clients.
        """
        alone = _aligned(self, local)
        assert alone is not None
        samples = self.used.get("samples", np.full(len(self.names), np.nan))
        right, right_alone = (np.round(accuracy * samples) for accuracy in (self.reported, alone))
        gain = uncertainty.accuracy_gains(right, right_alone, np.full(len(samples), np.nan), samples)
        intervals = list(zip(gain.low.tolist(), gain.high.tolist(), strict=True))
        return metrics.verdicts(self.names, self.reported, alone, _aligned(self, everyone), intervals=intervals)

    def weights(
        self, *, client: str | None = None, coalition: int | None = None, which: str = "last"
    ) -> dict[str, Any]:
        """Return one model's arrays by parameter name.

        Parameters
        ----------
        client : str, optional
            Whose model: that of its coalition, or its own where `which` is "personal".
        coalition : int, optional
            Or which coalition's, by position.
        which : str, default "last"
            "last" or "personal", as far as the training left them.

        Raises
        ------
        InputError
            If neither or both of `client` and `coalition` are given, or one is unknown.
        """
        stored = choose("which", which, dict(self.models))
        if (client is None) == (coalition is None):
            raise InputError("give either `client` or `coalition`, to say whose model")
        if client is not None and client not in self.names:
            raise InputError(f"`client` (={client!r}) must be one of: {', '.join(self.names)}")
        if which == "personal":
            if client is None:
                raise InputError("a personal model is a client's: give `client`")
            row = self.names.index(client)
        else:
            row = int(self.assignment[self.names.index(client)]) if client is not None else int(coalition or 0)
        if not 0 <= row < len(stored):
            raise InputError(f"`coalition` (={coalition}) must be from 0 to {len(stored) - 1}")
        return split_flat(stored[row], self.layout)

    def save(self, path: str | Path, made: Mapping[str, Any] | None = None) -> None:
        """Write PATH (JSON), and beside it the models (.safetensors) and the history (.jsonl) under the same name.

        Trees are also written as XGBoost saves them, those of each coalition (by position): .0.xgboost.json and so on.

        Parameters
        ----------
        path : str or Path
            The file.
        made : mapping, optional
            What a run records about settings and inputs.
        """
        write_result(self, path, made)

    @classmethod
    def load(cls, path: str | Path) -> TrainingResult:
        """Read a result that `save` wrote.

        Parameters
        ----------
        path : str or Path
            The file, the folder with training.json, or a run directory: then its training in coalitions.

        Raises
        ------
        InputError
            If a file is missing, broken or of another kind.
        """
        return read_result(cls, path)

    def plot(self) -> Any:
        """Return each client's accuracy, in the order of the coalitions, as an Altair chart."""
        return display("plot_training", self)

    def _repr_html_(self) -> str:
        return str(display("training_html", self))

    def __repr__(self) -> str:
        return (
            f"TrainingResult({self.method!r}, {len(self.names)} clients, {len(self.coalitions)} coalitions, "
            f"mean accuracy {self.reported.mean():.4f})"
        )


def _aligned(result: TrainingResult, other: TrainingResult | None) -> Floats | None:
    """Return the other result's reported accuracy in this one's order of clients."""
    if other is None:
        return None
    if set(other.names) != set(result.names):
        raise InputError("the two results are of different clients")
    position = {name: index for index, name in enumerate(other.names)}
    return other.reported[[position[name] for name in result.names]]
