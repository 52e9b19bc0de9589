"""What training leaves: every client's measures, who trained with whom, the models, and how it went."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from fedcollab import files as artefact
from fedcollab import metrics, uncertainty
from fedcollab.display import display
from fedcollab.errors import InputError, choose
from fedcollab.parsing import MOST_DATA, complete, names_in, read_bytes
from fedcollab.training.history import History

MEASURES = ("accuracy", "loss", "balanced_accuracy", "auc", "loss_stderr", "samples")
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
        accuracy, loss, balanced_accuracy and auc on each client's test split, of its coalition's last model; the
        standard error of the loss (`loss_stderr`) and the number of test samples (`samples`).
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
        Where the rounds were chosen: each client's mean loss on training rows that a model had not seen, after 0, 1, 2,
        ... rounds (the lower one of the mean over rounds and the last round's model).
    distances : array, optional
        N x N in the order of `names`, where a clustered baseline has one.
    training : str
        Which training this is (see `checkpoint.identity`); empty for results of earlier versions.

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

    @property
    def assignment(self) -> NDArray[np.int64]:
        """Each client's position in `coalitions`."""
        where = {name: label for label, members in enumerate(self.coalitions) for name in members}
        return np.array([where[name] for name in self.names])

    @property
    def accuracy(self) -> Floats:
        """Each client's accuracy with its coalition's model."""
        return self.measures["accuracy"]

    @property
    def loss(self) -> Floats:
        """Each client's mean cross-entropy on its test split, with its coalition's model."""
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
        return self.personal.get("accuracy")

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
        """The accuracy that the paper's tables report: personal where there is one, else the coalition's."""
        return self.used["accuracy"]

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
        return _split(stored[row], self.layout)

    def save(self, path: str | Path, made: Mapping[str, Any] | None = None) -> None:
        """Write PATH (JSON), and beside it the models (.safetensors) and the history (.jsonl) under the same name.

        Parameters
        ----------
        path : str or Path
            The file.
        made : mapping, optional
            What a run records about settings and inputs.
        """
        path = _file(path)
        tensors = {
            f"{which}/{row}/{name}": np.ascontiguousarray(value)
            for which, rows in self.models.items()
            for row, flat in enumerate(rows)
            for name, value in _split(flat, self.layout).items()
        }
        models = bytes(save_arrays(tensors))
        beside = {".safetensors": models, ".jsonl": self.history.lines()}
        for suffix, written in beside.items():
            artefact.write_bytes(path.with_suffix(suffix), written, private=written is models)
        artefact.write_json(
            path,
            "training",
            {
                "method": self.method,
                "names": list(self.names),
                "coalitions": self.coalitions,
                "assignment": self.assignment,
                "measures": dict(self.measures),
                "personal": dict(self.personal),
                "stopped": {str(key): value for key, value in self.stopped.items()},
                "failures": self.failures,
                "rounds": self.rounds,
                "averaged": self.averaged,
                "held_out": dict(self.held_out),
                "cost": dict(self.cost),
                "settings": dict(self.settings),
                "model": dict(self.model),
                "schema": dict(self.schema),
                "layout": self.layout,
                "models": {which: len(rows) for which, rows in self.models.items()},
                "distances": self.distances,
                "training": self.training,
                "checksums": {suffix: hashlib.sha256(written).hexdigest() for suffix, written in beside.items()},
            },
            made,
        )

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
        path = _file(artefact.inside(path, "training.json", "training/coalitions/training.json"))
        content = artefact.read_json(path, "training")
        with complete(path, "training"):
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
            )
            _check_fits(found)
            return found

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


def flatten(arrays: Mapping[str, NDArray[Any]], layout: list[tuple[str, tuple[int, ...]]]) -> NDArray[np.float32]:
    """Return one flat vector from arrays by parameter name."""
    return np.concatenate([np.asarray(arrays[name], dtype=np.float32).reshape(-1) for name, _ in layout])


def _split(flat: NDArray[np.float32], layout: list[tuple[str, tuple[int, ...]]]) -> dict[str, NDArray[np.float32]]:
    """Return the parts of a flat vector by parameter name; the opposite of `flatten`."""
    edges = np.cumsum([int(np.prod(shape)) for _, shape in layout])[:-1]
    parts = np.split(flat, edges)
    return {name: part.reshape(shape) for (name, shape), part in zip(layout, parts, strict=True)}


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
    if "accuracy" not in found.measures or "loss" not in found.measures:
        raise ValueError("`measures` lacks accuracy or loss")
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


def _aligned(result: TrainingResult, other: TrainingResult | None) -> Floats | None:
    """Return the other result's reported accuracy in this one's order of clients."""
    if other is None:
        return None
    if set(other.names) != set(result.names):
        raise InputError("the two results are of different clients")
    position = {name: index for index, name in enumerate(other.names)}
    return other.reported[[position[name] for name in result.names]]


def _file(path: str | Path) -> Path:
    """Return the path of a result; a folder means training.json in it."""
    path = Path(path)
    return path / "training.json" if path.is_dir() or not path.suffix else path


def schema_of(text: str) -> dict[str, Any]:
    """Return a schema's JSON as an object, to be stored with the models that need it."""
    content: dict[str, Any] = json.loads(text)
    return content
