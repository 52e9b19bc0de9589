"""What tells how good a model is for a client, by task; the first measure of each is the higher, the better.

    classification   accuracy, cross-entropy, balanced accuracy, AUC
    regression       R2 = 1 - mean(e^2) / v, loss, RMSE and MAE in the target's units

v is the variance of the target over the client's own training samples (over all clients', which is 1, where it is the
same at all of them): R2 is 0 for always giving the client's mean. Taken from the test samples, of which there may be
five, it would itself be a matter of luck.

R2 stands in a regression wherever accuracy stands in a classification: gains, IPR and RSD are differences of it. Both
are means over samples, of `right`: whether a prediction is right, and 1 - e^2 / v.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedcollab.tasks import CLASSIFICATION, REGRESSION, TASKS, Task
from fedcollab.training.losses import CROSS_ENTROPY, LOSSES

Floats = NDArray[np.float64]


class Scores(ABC):
    """What is measured of a model in one task.

    Attributes
    ----------
    task : Task
        Names and words of the measures; the first is a mean of `right` over samples.
    """

    task: ClassVar[Task]

    @property
    def measures(self) -> tuple[str, str, str, str, str, str]:
        """What an evaluation measures, in order."""
        return self.task.measures

    @abstractmethod
    def right(self, outputs: Tensor, y: Tensor, spread: float | Tensor) -> NDArray[Any]:
        """Return each sample's part in the first measure.

        Parameters
        ----------
        outputs : Tensor
            What the model gives, [..., n, outputs].
        y : Tensor
            Class indices or targets, [..., n].
        spread : float or Tensor
            v, from `spread`; with several models, one row for each.
        """

    @abstractmethod
    def spread(self, y: NDArray[Any]) -> float:
        """Return v, given the target of the client's training samples; 1 for classes."""

    @abstractmethod
    def guessing(self, outputs: int) -> float:
        """Return about the loss of a model that knows nothing, given the number of its outputs."""

    @abstractmethod
    def most_loss(self, outputs: int) -> float:
        """Return up to which value the loss of a sample counts where measures are rounded."""

    @abstractmethod
    def unexplained(self, reached: Floats) -> Floats:
        """Return how far gains in the first measure may reach, for clients that reached this much alone."""

    @abstractmethod
    def impossible(self, measures: Any) -> str | None:
        """Return what is wrong with measures of a model, in order and without the last two, or None."""


class ClassScores(Scores):
    """Shares of samples that a classifier gets right."""

    task = TASKS[CLASSIFICATION]

    def right(self, outputs: Tensor, y: Tensor, spread: float | Tensor) -> NDArray[Any]:
        """Return whether each prediction is right; arguments as in `Scores.right`."""
        found: NDArray[Any] = (outputs.argmax(-1) == y).cpu().numpy()
        return found

    def spread(self, y: NDArray[Any]) -> float:
        """Return 1: a prediction is right or not, whatever the classes are."""
        return 1.0

    def guessing(self, outputs: int) -> float:
        """Return ln(classes), the loss of giving every class the same probability."""
        return math.log(outputs)

    def most_loss(self, outputs: int) -> float:
        """Return 2 (1 + ln classes): twice the loss of guessing, and 2."""
        return 2.0 * (1.0 + math.log(max(2, outputs)))

    def unexplained(self, reached: Floats) -> Floats:
        """Return a quarter: the variance of a prediction that is as often right as wrong."""
        return np.full(len(reached), 0.25)

    def impossible(self, measures: Any) -> str | None:
        """Return what is wrong with accuracy, loss, balanced accuracy and AUC, or None."""
        accuracy, _, *others = measures
        wrong = any(not np.isnan(share) and not 0 <= share <= 1 for share in np.ravel([accuracy, *others]))
        return "a share outside 0 to 1" if wrong else None


class NumberScores(Scores):
    """How much of a numeric target's variance is explained, and how far predictions are off."""

    task = TASKS[REGRESSION]

    def right(self, outputs: Tensor, y: Tensor, spread: float | Tensor) -> NDArray[Any]:
        """Return 1 - e^2 / v of each sample; arguments as in `Scores.right`."""
        found: NDArray[Any] = (1 - (outputs.squeeze(-1) - y).double().square() / spread).cpu().numpy()
        return found

    def spread(self, y: NDArray[Any]) -> float:
        """Return the variance of the target; 1 if it is constant."""
        variance = float(np.var(y, dtype=np.float64))
        return variance if variance > 1e-12 else 1.0

    def guessing(self, outputs: int) -> float:
        """Return 1, which is at least the loss of always giving the mean."""
        return 1.0

    def most_loss(self, outputs: int) -> float:
        """Return 2: that of an error of two deviations."""
        return 2.0

    def unexplained(self, reached: Floats) -> Floats:
        """Return 1 - R2, the share of the variance that is still to be explained."""
        return 1 - reached

    def impossible(self, measures: Any) -> str | None:
        """Return what is wrong with R2, loss, RMSE and MAE, or None."""
        r2, _, *errors = measures
        if (np.ravel(r2) > 1).any():
            return "an R2 above 1"
        return "a negative error" if (np.ravel(errors) < 0).any() else None


SCORES: dict[str, Scores] = {each.task.name: each for each in (ClassScores(), NumberScores())}


def scores_of(setting: str) -> Scores:
    """Return what is measured of a model, given the setting of its training (`Setting`) as JSON."""
    model = json.loads(json.loads(setting)["model"])
    return SCORES[LOSSES[model.get("loss", CROSS_ENTROPY)].task]
