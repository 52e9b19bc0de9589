"""What `compare` leaves: how the models of several trainings do on the same test samples, client by client.

With counts, means and covariances over test samples, the interval of every accuracy, loss and difference is known
(`uncertainty`), and nothing is known about single samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab import files as artefact
from fedcollab import uncertainty
from fedcollab.errors import InputError
from fedcollab.parsing import complete, names_in
from fedcollab.training.result import TrainingResult
from fedcollab.uncertainty import Estimates

Floats = NDArray[np.float64]

#: the name of always giving a client's most frequent class
MAJORITY = "majority"
#: two models whose losses differ by no more than rounding are one model, and their accuracies are the same for certain
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
        names = tuple(dict.fromkeys(name for result in results.values() for name in result.names))
        count = len(results)
        samples = np.full(len(names), np.nan)
        right, spread = (np.full((len(names), count, count), np.nan) for _ in range(2))
        loss = np.full((len(names), count), np.nan)
        for position, result in enumerate(results.values()):
            known = {key: _column(result, key, names) for key in ("accuracy", "loss", "loss_stderr", "samples")}
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
        with complete(path, "comparison"):
            arrays = {
                key: np.array(content[key], dtype=np.float64) for key in ("samples", "right", "loss", "spread")
            }  # null becomes NaN
            return cls(names_in(content), names_in(content, "models"), **arrays)

    def _position(self, model: str) -> int:
        """Return the position of a model."""
        if model not in self.models:
            raise InputError(f"`model` (={model!r}) must be one of: {', '.join(self.models)}")
        return self.models.index(model)


def _column(result: TrainingResult, key: str, names: Iterable[str]) -> Floats:
    """Return one measure of the model that each client would use, in the order of `names`; NaN where it has none."""
    by_name = dict(zip(result.names, result.used.get(key, np.full(len(result.names), np.nan)).tolist(), strict=True))
    return np.array([by_name.get(name, np.nan) for name in names])
