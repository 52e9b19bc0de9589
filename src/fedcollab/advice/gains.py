"""Gains that are expected, with how sure they are: in loss, in accuracy, and in the units of a numeric target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

#: the share of intervals that hold the true value
LEVEL = 0.8


@dataclass(frozen=True)
class Expected:
    """A gain that is expected.

    Parameters
    ----------
    mean : float
        The gain over training alone; positive is better.
    stderr : float
        How far the true gain may be from it: a standard deviation.
    """

    mean: float
    stderr: float

    @property
    def probability(self) -> float:
        """The probability of gaining against training alone."""
        if self.stderr <= 0:
            return 0.5 if self.mean == 0 else float(self.mean > 0)
        return NormalDist().cdf(self.mean / self.stderr)

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the interval that holds the true gain with this probability.

        Parameters
        ----------
        level : float
            Above 0 and below 1.

        Examples
        --------
        >>> low, high = Expected(0.03, 0.01).interval()
        >>> round(low, 4), round(high, 4)
        (0.0172, 0.0428)
        """
        half = NormalDist().inv_cdf(0.5 + level / 2) * self.stderr
        return self.mean - half, self.mean + half


@dataclass(frozen=True)
class Gain(Expected):
    """What a client is expected to gain by following the advice, against training alone.

    Parameters
    ----------
    mean, stderr : float
        As in `Expected`, in the metric of the advice.
    loss, accuracy : Expected
        The same in loss (positive is better) and in accuracy (a share); of a numeric target R2 stands for accuracy.
    measured : bool
        Whether the client had enough rows to be measured; if not, the gain is that of the federation.
    """

    loss: Expected
    accuracy: Expected
    measured: bool = True


def in_units(gain: Expected, alone: float, target: Mapping[str, Any]) -> Expected:
    """Return a gain in the loss of a numeric target as one in its error: RMSE, or MAE for the absolute loss.

    Parameters
    ----------
    gain : Expected
        The gain in loss.
    alone : float
        The loss of training alone.
    target : mapping
        As in `Advice`.

    Examples
    --------
    >>> in_units(Expected(0.375, 0.1), 0.5, {"loss": "squared", "scale": 10.0}).mean  # RMSE 10 alone, and 5
    5.0
    """
    scale = float(target["scale"])
    if target["loss"] == "absolute":
        return Expected(scale * gain.mean, scale * gain.stderr)
    before, after = (scale * math.sqrt(2 * max(loss, 0.0)) for loss in (alone, alone - gain.mean))
    slope = 2 * scale**2 / max(before + after, 1e-12)  # of the error in the loss
    return Expected(before - after, slope * gain.stderr)
