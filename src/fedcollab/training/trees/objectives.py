"""What trees minimise: the gradient and hessian of each row's loss, and the base score. One table, `OBJECTIVES`.

With margins m (what trees and base score add up to) and the row's target y:

    binary:logistic     p = 1 / (1 + exp(-m)),      g = p - y,          h = p (1 - p)
    multi:softprob      p = softmax(m),             g_k = p_k - [y = k], h_k = 2 p_k (1 - p_k)
    reg:squarederror                                g = m - y,          h = 1

Names and formulas are XGBoost's. Gradients and hessians are rounded to multiples of 2^-30 (XGBoost's are of 24 bits).
Sums of them are exact up to 2^23, so that they are the same whoever adds up what in which order, and one half of a node
is the node less the other half.

The base score b is the best constant margin. It follows from the sums of gradients and hessians at margin 0; of each
class half a sample more is counted, so that one that a coalition lacks has a finite score.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
#: class indices, or numbers
Targets = NDArray[np.int64] | Floats

#: what gradients and hessians are multiples of, and the smallest hessian
UNIT = 2.0**-30
#: what is added to the count of each class
PRIOR = 0.5
#: Newton steps of an own base score, and the change below which they end
STEPS, SMALL = 60, 1e-7
#: how far one of these steps goes at most where the curvature changes by up to a factor of e per unit of margin: longer
#: ones jump back and forth over the minimum without end
FARTHEST = 2.0


@dataclass(frozen=True)
class Objective:
    """One loss.

    Parameters
    ----------
    name : str
        XGBoost's name.
    gradients : callable
        `(margins [n, K], targets [n])` to gradients and hessians, both [n, K].
    base : callable
        `(sums of gradients [K], sums of hessians [K])` at margin 0 to the best constant margins [K].
    farthest : float
        The longest step of Newton's that does no harm.
    """

    name: str
    gradients: Callable[[Floats, Targets], tuple[Floats, Floats]]
    base: Callable[[Floats, Floats], Floats]
    farthest: float


def _summable(gradient: Floats, hessian: Floats) -> tuple[Floats, Floats]:
    """Round gradients and hessians to multiples of `UNIT`, in place."""
    for values in (gradient, hessian):
        values /= UNIT
        np.rint(values, out=values)
        values *= UNIT
    return gradient, np.maximum(hessian, UNIT, out=hessian)


def _logistic(margins: Floats, targets: Targets) -> tuple[Floats, Floats]:
    p = 1 / (1 + np.exp(-np.clip(margins, -500, 500)))
    return _summable(p - targets[:, None], p * (1 - p))


def _logistic_base(gradient: Floats, hessian: Floats) -> Floats:
    rows = 4 * hessian
    ones = rows / 2 - gradient
    base: Floats = np.log((ones + PRIOR) / (rows - ones + PRIOR))
    return base


def _softmax(margins: Floats, targets: Targets) -> tuple[Floats, Floats]:
    p = np.exp(margins - margins.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    hessian = 2 * p * (1 - p)
    p[np.arange(len(p)), targets.astype(np.intp)] -= 1
    return _summable(p, hessian)


def _softmax_base(gradient: Floats, hessian: Floats) -> Floats:
    share = 1 / len(gradient)
    rows = hessian / (2 * share * (1 - share))
    logs = np.log(share * rows - gradient + PRIOR)
    base: Floats = logs - logs.mean()
    return base


def _squared(margins: Floats, targets: Targets) -> tuple[Floats, Floats]:
    return _summable(margins - targets[:, None], np.ones_like(margins))


def _squared_base(gradient: Floats, hessian: Floats) -> Floats:
    base: Floats = -gradient / np.maximum(hessian, UNIT)
    return base


OBJECTIVES = {
    each.name: each
    for each in (
        Objective("binary:logistic", _logistic, _logistic_base, FARTHEST),
        Objective("multi:softprob", _softmax, _softmax_base, FARTHEST),
        Objective("reg:squarederror", _squared, _squared_base, np.inf),
    )
}


def objective_of(classes: int) -> Objective:
    """Return the objective for so many classes; 1 stands for a numeric target."""
    return OBJECTIVES[{1: "reg:squarederror", 2: "binary:logistic"}.get(classes, "multi:softprob")]


def at_start(classes: int) -> tuple[float, float]:
    """Return how large gradients and hessians of rows are before any tree; for a numeric target, in its deviations.

    Parameters
    ----------
    classes : int
        The number of classes; 1 stands for a numeric target.

    Examples
    --------
    >>> at_start(2)
    (0.5, 0.25)
    """
    if classes == 1:
        return 1.0, 1.0
    variance = (1 - 1 / classes) / classes
    return float(np.sqrt(variance)), variance if classes == 2 else 2 * variance


def own_base(objective: Objective, trees: Floats, targets: Targets, start: Floats, reg_lambda: float) -> Floats:
    """Return the base score that fits a client's own rows best beside its coalition's trees.

    It minimises the sum of losses + reg_lambda / 2 (b - start)^2 by Newton's steps of limited length: a client of few
    rows stays near the coalition's base score, as a leaf of few rows stays near 0.

    Parameters
    ----------
    objective : Objective
        The loss.
    trees : array
        What the trees add up to for each row, [n, K].
    targets : array
        The rows' targets.
    start : array
        The coalition's base score, [K].
    reg_lambda : float
        How strongly it is drawn to the coalition's.
    """
    base = start.copy()
    for _ in range(STEPS):
        gradient, hessian = objective.gradients(trees + base, targets)
        step = (gradient.sum(axis=0) + reg_lambda * (base - start)) / (hessian.sum(axis=0) + reg_lambda + UNIT)
        base = base - np.clip(step, -objective.farthest, objective.farthest)
        if np.abs(step).max() < SMALL:
            break
    return base
