"""What models predict, and what the figures about them are called: for a class, and for a numeric target.

The first measure of a task is the one that gains, IPR and RSD are of: accuracy, or R2. Both are shares, told in percent
and points. Errors of a numeric target are told in its own units. A task more is one more entry in `TASKS`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcollab import metrics

CLASSIFICATION, REGRESSION = "classification", "regression"


@dataclass(frozen=True)
class Further:
    """A measure that is told beside the first one and the loss.

    Parameters
    ----------
    key : str
        Its name among the measures.
    short, long : str
        What a column of it is called.
    percent : bool
        Whether it is a share; else it is in the target's units.
    """

    key: str
    short: str
    long: str
    percent: bool

    def text(self, value: float | None, missing: str = "") -> str:
        """Return a figure as text; `missing` where it is not known."""
        if value is None or np.isnan(value):
            return missing
        return f"{100 * value:.1f} %" if self.percent else metrics.in_units(value)


@dataclass(frozen=True)
class Task:
    """What is measured of the models of a task, and what it is called.

    Parameters
    ----------
    name : str
        The task.
    measures : tuple of str
        What an evaluation measures, in order.
    score : str
        What the first is called.
    points : str
        What a difference of a hundredth of it is called.
    loss : str
        What the loss is called.
    constant, constant_short : str
        What a model is called that gives the same for every sample.
    further : tuple of Further
        The measures beside the first and the loss.
    """

    name: str
    measures: tuple[str, str, str, str, str, str]
    score: str
    points: str
    loss: str
    constant: str
    constant_short: str
    further: tuple[Further, Further]

    @property
    def key(self) -> str:
        """The name of the first measure."""
        return self.measures[0]

    @property
    def title(self) -> str:
        """What the first measure is called at the beginning of a sentence."""
        return self.score[0].upper() + self.score[1:]

    @property
    def numeric(self) -> bool:
        """Whether predictions are numbers, whose errors have units."""
        return self.name == REGRESSION


TASKS = {
    CLASSIFICATION: Task(
        CLASSIFICATION,
        ("accuracy", "loss", "balanced_accuracy", "auc", "loss_stderr", "samples"),
        "accuracy",
        "points",
        "log loss",
        "always giving each client's most frequent class",
        "most frequent class",
        (
            Further("balanced_accuracy", "balanced", "Balanced accuracy", percent=True),
            Further("auc", "AUC", "AUC", percent=True),
        ),
    ),
    REGRESSION: Task(
        REGRESSION,
        ("r2", "loss", "rmse", "mae", "loss_stderr", "samples"),
        "R²",
        "points of R²",
        "loss",
        "always giving the mean of each client's target",
        "mean of the target",
        (Further("rmse", "RMSE", "RMSE", percent=False), Further("mae", "MAE", "MAE", percent=False)),
    ),
}


def error_gain(r2: ArrayLike, r2_alone: ArrayLike, error: ArrayLike, error_alone: ArrayLike) -> NDArray[np.float64]:
    """Return by how much the RMSE of each client is lower for each unit by which its R2 is higher.

    With the variance v of a target, R2 = 1 - RMSE^2 / v, so that

        RMSE_alone - RMSE = v (R2 - R2_alone) / (RMSE + RMSE_alone),      v = RMSE_alone^2 / (1 - R2_alone).

    Parameters
    ----------
    r2, r2_alone, error, error_alone : array_like
        R2 and RMSE of the client's model and of the one that it is compared with.

    Examples
    --------
    >>> error_gain([0.91], [0.84], [0.3], [0.4]).round(4).tolist()  # 0.1 for 0.07
    [1.4286]
    """
    ours, alone, own, other = (np.asarray(part, dtype=np.float64) for part in (r2, r2_alone, error, error_alone))
    with np.errstate(divide="ignore", invalid="ignore"):
        of_other, of_own = other**2 / (1 - alone), own**2 / (1 - ours)
        variance = np.where(np.isfinite(of_other), of_other, of_own)
        found: NDArray[np.float64] = variance / (own + other)
    return np.where(np.isfinite(found), found, 0.0)
