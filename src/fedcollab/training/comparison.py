"""What `compare` leaves: how the models of several trainings do on the same test samples, client by client.

With counts, means and covariances over test samples, the interval of every accuracy, loss and difference is known
(`uncertainty`), and nothing is known about single samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcollab import uncertainty
from fedcollab.errors import InputError
from fedcollab.training.figures import Figures
from fedcollab.training.result import TrainingResult
from fedcollab.uncertainty import Estimates

Floats = NDArray[np.float64]

#: the name of always giving a client's most frequent class, or the mean of its numeric target
MAJORITY = "majority"
#: two models whose losses differ by no more than rounding are one model, and their accuracies are the same for certain
SAME = 1e-5


@dataclass(frozen=True, eq=False)
class Comparison(Figures):
    """What the models of several trainings do with the same test samples, client by client.

    Parameters
    ----------
    names : tuple of str
        The clients.
    models : tuple of str
        The trainings; the last is "majority", always giving the client's most frequent class (or the mean of its
        numeric target), where that is known.
    samples : array
        Each client's test samples; NaN where that is not known.
    right : array
        [clients, models, models]: how many test samples both of two models get right; NaN where that is not known.
    loss : array
        [clients, models]: the mean loss.
    spread : array
        [clients, models, models]: the covariance of the losses of two models over test samples.
    unexplained, unexplained_spread : array, optional
        Of a numeric target, as `loss` and `spread`: the share of its variance that a model does not explain (1 - R2).
    """

    kind = "comparison"

    models: tuple[str, ...]
    samples: Floats
    right: Floats
    loss: Floats
    spread: Floats
    unexplained: Floats | None = None
    unexplained_spread: Floats | None = None

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
        numeric = any(result.task == "regression" for result in results.values())
        unexplained, unexplained_spread = loss.copy(), spread.copy()
        for position, result in enumerate(results.values()):
            keys = ("loss", "loss_stderr", "samples", result.scores.measures[0])
            of_loss, stderr, tested, score = (_column(result, key, names) for key in keys)
            samples = np.where(np.isnan(samples), tested, samples)
            loss[:, position] = of_loss
            spread[:, position, position] = stderr**2 * tested
            if numeric:
                unexplained[:, position] = 1 - score
            else:
                right[:, position, position] = np.round(score * tested)
        further = (unexplained, unexplained_spread) if numeric else ()
        return cls(names, tuple(results), samples, right, loss, spread, *further)

    def accuracy(self, model: str) -> Estimates:
        """Return each client's accuracy (of a numeric target R2) with a model, with intervals."""
        which = self._position(model)
        if self.unexplained is not None and self.unexplained_spread is not None:
            stderr = np.sqrt(self.unexplained_spread[:, which, which] / self.samples)
            return uncertainty.means(1 - self.unexplained[:, which], stderr, self.samples)
        return uncertainty.accuracies(self.right[:, which, which], self.samples)

    def accuracy_gain(self, model: str, over: str) -> Estimates:
        """Return how much higher each client's accuracy (or R2) is than with another model; paired where known.

        Parameters
        ----------
        model, over : str
            The two trainings; a positive gain is in favour of `model`.
        """
        first, second = self._position(model), self._position(over)
        if self.unexplained is not None and self.unexplained_spread is not None:
            return self._gain(self.unexplained, self.unexplained_spread, first, second)
        own, other, both = (self.right[:, i, j] for i, j in ((first, first), (second, second), (first, second)))
        losses = self.loss_gain(model, over)
        same = (np.abs(losses.mean) < SAME) & (losses.stderr < SAME) & (own == both) & (other == both)
        return uncertainty.accuracy_gains(own, other, both, self.samples, same)

    def loss_gain(self, model: str, over: str) -> Estimates:
        """Return how much lower each client's mean loss is than with another model; arguments as in `accuracy_gain`."""
        return self._gain(self.loss, self.spread, self._position(model), self._position(over))

    def _gain(self, mean: Floats, spread: Floats, first: int, second: int) -> Estimates:
        """Return by how much a mean over samples is lower with the first model than with the second, with intervals."""
        own, other, both = (spread[:, i, j] for i, j in ((first, first), (second, second), (first, second)))
        variance = own + other - 2 * np.where(np.isnan(both), 0, both)
        stderr = np.sqrt(np.maximum(variance, 0) / self.samples)
        return uncertainty.means(mean[:, second] - mean[:, first], stderr, self.samples)

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

        values = (self.samples, self.right, self.loss, self.spread, self.unexplained, self.unexplained_spread)
        return Comparison(wanted, self.models, *(pick(part) for part in values if part is not None))

    def _position(self, model: str) -> int:
        """Return the position of a model."""
        if model not in self.models:
            raise InputError(f"`model` (={model!r}) must be one of: {', '.join(self.models)}")
        return self.models.index(model)


def _column(result: TrainingResult, key: str, names: Iterable[str]) -> Floats:
    """Return one measure of the model that each client would use, in the order of `names`; NaN where it has none."""
    by_name = dict(zip(result.names, result.used.get(key, np.full(len(result.names), np.nan)).tolist(), strict=True))
    return np.array([by_name.get(name, np.nan) for name in names])
