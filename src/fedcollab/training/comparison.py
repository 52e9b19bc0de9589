"""`compare`: trained models of the same clients on the same test samples, so that differences can be told from chance.

Every client is asked once, about the model that it would use of each training. It answers counts, means and covariances
over its test samples; with them, the interval of every accuracy, loss and difference is known (`uncertainty`), and
nothing is known about single samples.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab import files as artefact
from fedcollab import uncertainty
from fedcollab.errors import FedcollabWarning, InputError, Paused
from fedcollab.federation import Clients, Federation, federate
from fedcollab.training import compare_client
from fedcollab.training.descend import Setting
from fedcollab.training.models import MODELS, Network, size_of
from fedcollab.training.result import TrainingResult
from fedcollab.uncertainty import Estimates
from fedcollab.wire.message import Message

Floats = NDArray[np.float64]

#: the name of always giving a client's most frequent class
MAJORITY = "majority"
#: two models whose losses differ by no more than rounding are one model: their accuracies do not differ by chance either
SAME = 1e-5


@dataclass(frozen=True, eq=False)
class Comparison:
    """What the models of several trainings do with the same test samples, client by client.

    Parameters
    ----------
    names : tuple of str
        The clients.
    models : tuple of str
        The trainings; the last is "majority", always giving the client's most frequent class, where that is known.
    samples : array
        Each client's test samples; NaN where that is not known.
    right : array
        [clients, models, models]: how many test samples both of two models get right; NaN where that is not known.
    loss : array
        [clients, models]: the mean loss.
    spread : array
        [clients, models, models]: the covariance of the losses of two models over test samples.
    """

    names: tuple[str, ...]
    models: tuple[str, ...]
    samples: Floats
    right: Floats
    loss: Floats
    spread: Floats

    @classmethod
    def of_results(cls, results: Mapping[str, TrainingResult]) -> Comparison:
        """Return what the results alone tell: each model's own figures, and nothing about the same samples.

        Parameters
        ----------
        results : mapping of TrainingResult
            The results, by name.
        """
        names = _common(results)
        count = len(results)
        samples = np.full(len(names), np.nan)
        right, spread = (np.full((len(names), count, count), np.nan) for _ in range(2))
        loss = np.full((len(names), count), np.nan)
        for position, result in enumerate(results.values()):
            rows = [result.names.index(name) for name in names]
            unknown = np.full(len(result.names), np.nan)
            known = {key: result.used.get(key, unknown)[rows] for key in ("accuracy", "loss", "loss_stderr", "samples")}
            samples = np.where(np.isnan(samples), known["samples"], samples)
            right[:, position, position] = np.round(known["accuracy"] * known["samples"])
            loss[:, position] = known["loss"]
            spread[:, position, position] = known["loss_stderr"] ** 2 * known["samples"]
        return cls(names, tuple(results), samples, right, loss, spread)

    def accuracy(self, model: str) -> Estimates:
        """Return each client's accuracy with a model, with intervals."""
        which = self._position(model)
        return uncertainty.accuracies(self.right[:, which, which], self.samples)

    def accuracy_gain(self, model: str, over: str) -> Estimates:
        """Return how much more accurate each client's model is than another, with intervals; paired where known.

        Parameters
        ----------
        model, over : str
            The two trainings; a positive gain is in favour of `model`.
        """
        first, second = self._position(model), self._position(over)
        own, other, both = (self.right[:, i, j] for i, j in ((first, first), (second, second), (first, second)))
        losses = self.loss_gain(model, over)
        same = (np.abs(losses.mean) < SAME) & (losses.stderr < SAME) & (own == both) & (other == both)
        return uncertainty.accuracy_gains(own, other, both, self.samples, same)

    def loss_gain(self, model: str, over: str) -> Estimates:
        """Return how much lower each client's mean loss is than with another model; arguments as in `accuracy_gain`."""
        first, second = self._position(model), self._position(over)
        own, other, both = (self.spread[:, i, j] for i, j in ((first, first), (second, second), (first, second)))
        variance = own + other - 2 * np.where(np.isnan(both), 0, both)
        stderr = np.sqrt(np.maximum(variance, 0) / self.samples)
        return uncertainty.means(self.loss[:, second] - self.loss[:, first], stderr, self.samples)

    def losses(self, model: str) -> Estimates:
        """Return each client's mean loss with a model, with intervals."""
        which = self._position(model)
        stderr = np.sqrt(self.spread[:, which, which] / self.samples)
        return uncertainty.means(self.loss[:, which], stderr, self.samples)

    def ordered(self, names: Iterable[str]) -> Comparison:
        """Return the same in another order of clients, NaN for those that are not in it."""
        wanted = tuple(names)
        rows = [self.names.index(name) if name in self.names else -1 for name in wanted]
        missing = np.array([row < 0 for row in rows])

        def pick(values: Floats) -> Floats:
            picked = values[rows].copy()
            picked[missing] = np.nan
            return picked

        parts = (pick(values) for values in (self.samples, self.right, self.loss, self.spread))
        return Comparison(wanted, self.models, *parts)

    def save(self, path: str | Path, made: Mapping[str, Any] | None = None) -> None:
        """Write the comparison as JSON.

        Parameters
        ----------
        path : str or Path
            The file.
        made : mapping, optional
            What a run records about settings and inputs.
        """
        artefact.write_json(Path(path), "comparison", asdict(self), made)

    @classmethod
    def load(cls, path: str | Path) -> Comparison:
        """Read a comparison that `save` wrote.

        Parameters
        ----------
        path : str or Path
            The file.

        Raises
        ------
        InputError
            If it is missing, broken or of another kind.
        """
        content = artefact.read_json(Path(path), "comparison")
        try:
            arrays = {
                key: np.array(content[key], dtype=np.float64) for key in ("samples", "right", "loss", "spread")
            }  # null becomes NaN
            return cls(tuple(content["names"]), tuple(content["models"]), **arrays)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"`{path}` is not a complete comparison: {error!r}") from None

    def _position(self, model: str) -> int:
        """Return the position of a model."""
        if model not in self.models:
            raise InputError(f"`model` (={model!r}) must be one of: {', '.join(self.models)}")
        return self.models.index(model)


def compare(clients: Clients, results: Mapping[str, TrainingResult]) -> Comparison:
    """Compare the models of several trainings on the test samples of every client, in one round.

    Parameters
    ----------
    clients : iterable of ClientData, Runtime or Federation
        The clients, prepared as they were for the trainings.
    results : mapping of TrainingResult
        The trainings to compare, by name: each client is asked about the model that it would use of each.

    Returns
    -------
    Comparison
        Intervals of accuracies and of gains. What a client does not answer is taken from the results, as far as they
        know it.

    Raises
    ------
    InputError
        If there is no result, or the results are of different clients.

    Examples
    --------
    >>> alone, together = train(clients, "local"), train(clients, "global")       # doctest: +SKIP
    >>> found = compare(clients, {"alone": alone, "together": together})            # doctest: +SKIP
    >>> found.accuracy_gain("together", over="alone").verdicts                       # doctest: +SKIP
    """
    if not results or MAJORITY in results:
        raise InputError(f"`results` (={sorted(results)}) must name at least one training, none of them {MAJORITY!r}")
    federation = clients if isinstance(clients, Federation) else federate(clients)
    known = Comparison.of_results(results)
    there = [name for name in known.names if name in federation.names]
    messages = {name: _message(results, name) for name in there}
    try:
        answers = federation.call(compare_client.compare, messages, partial=True)
    except Paused as error:
        text = f"the models could not be compared on the same test samples, so that intervals are wider: {error}"
        warnings.warn(text, FedcollabWarning, stacklevel=2)
        return known
    wider = ((0, 0), (0, 1), (0, 1))
    right, spread = (np.pad(part, wider, constant_values=np.nan) for part in (known.right, known.spread))
    loss, samples = np.pad(known.loss, wider[:2], constant_values=np.nan), known.samples.copy()
    for row, name in enumerate(known.names):
        answer = answers.get(name)
        if answer is None or "right" not in answer:
            continue
        samples[row] = answer["samples"]
        told = np.ix_(*[np.flatnonzero(answer["known"])] * 2)
        right[row][told], spread[row][told] = answer["right"][told], answer["spread"][told]
        loss[row][told[1][0]] = answer["loss"][told[1][0]]
    return Comparison(known.names, (*results, MAJORITY), samples, right, loss, spread)


def _message(results: Mapping[str, TrainingResult], name: str) -> Message:
    """Return what one client is asked."""
    message: Message = {
        "trainings": [result.training for result in results.values()],
        "settings": [_setting(result) for result in results.values()],
    }
    for position, result in enumerate(results.values()):
        weights = _weights(result, name)
        if weights is not None:
            message[f"w{position}"] = weights
    return message


def _weights(result: TrainingResult, name: str) -> NDArray[np.float32] | None:
    """Return the flat weights of the model that a client would use, or None if they are not to be had here."""
    row = result.names.index(name)
    if result.model.get("name") not in MODELS:
        return None  # a model of the caller's own, in a result of another process
    if not result.personal:
        saved = result.models["last"][result.assignment[row]]
    elif "personal" in result.models:
        saved = result.models["personal"][row]
    else:
        return None
    whole = np.zeros(size_of(_network(result)), dtype=np.float32)
    whole[: len(saved)] = saved
    return whole


def _setting(result: TrainingResult) -> str:
    """Return the setting of a training as messages carry it."""
    known = {each.name: result.settings[each.name] for each in fields(Setting) if each.name in result.settings}
    return json.dumps(asdict(Setting(**{**known, "model": _network(result)})))


def _network(result: TrainingResult) -> str:
    """Return the text that names a result's network."""
    spec = result.model
    return Network.describe(spec["name"], spec["options"], spec["shape"], int(spec["classes"]))


def _common(results: Mapping[str, TrainingResult]) -> tuple[str, ...]:
    """Return the clients of the results, in the order of the first, after checking that all have the same."""
    first = next(iter(results.values()))
    for name, result in results.items():
        if set(result.names) != set(first.names):
            raise InputError(f"`results` are of different clients: {name!r} has others than {next(iter(results))!r}")
    return first.names
