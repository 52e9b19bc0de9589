"""What the statistics can be that distances are made of: checked before the first pair is compared."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedcollab.distances.methods.few_round_client import unfolded

Floats = NDArray[np.float64]

#: how many times as long as the samples of the whole federation those of one client may be, together
LONGER = 1000.0
#: how far below zero rounding to float32 may take an eigenvalue, as a share of the largest
ROUNDING = 1e-4


def impossible_moments(triangles: NDArray[np.float32], quantity: int, everyone: float | None) -> str | None:
    """Return why no samples can have these moments, or None.

    Parameters
    ----------
    triangles : array
        Sums of products of two features (folds, labels, triangle): the upper triangle of each matrix, row by row; the
        last feature is 1, so that the last entry is a number of samples.
    quantity : int
        How many samples the client said it has.
    everyone : float, optional
        The squared length of all clients' samples together that the schema's scaling makes; None where it does not
        scale.
    """
    counts = triangles[..., -1].astype(np.float64)
    if (counts < -0.5).any() or abs(counts.sum() - quantity) > 0.5 + 1e-5 * quantity:
        return f"`m` counts {counts.sum():.6g} samples; the client said {quantity}"
    matrices = unfolded(triangles)
    lengths = np.trace(matrices, axis1=-2, axis2=-1) - counts
    if everyone is not None and lengths.sum() > LONGER * everyone:
        return f"`m` is of samples {lengths.sum() / everyone:.3g} times as long as all clients' together"
    values = np.linalg.eigvalsh(matrices)
    if (values[..., 0] < -ROUNDING * np.maximum(values[..., -1], 1.0)).any():
        return "`m` is not positive semidefinite: no samples have such products"
    return None


def impossible_accuracies(found: Floats, noise: float | None) -> str | None:
    """Return why these cannot be accuracies, their variances and replicates, or None.

    Parameters
    ----------
    found : array
        (pairs, columns): the accuracy, its variance, replicates; with noise the accuracy alone.
    noise : float or None
        The standard deviation of the noise of differential privacy, if there is any.
    """
    if noise is not None:
        beyond = np.abs(found - 0.5).max(initial=0.0) > 0.5 + 10 * noise
        return "`found` has accuracies farther from 0 to 1 than the noise explains" if beyond else None
    accuracy, variance, replicates = found[:, 0], found[:, 1], found[:, 2:]
    slack = 1e-6
    if accuracy.min(initial=0.0) < -slack or accuracy.max(initial=1.0) > 1 + slack:
        return "`found` has accuracies outside 0 to 1"
    if variance.min(initial=0.0) < 0 or variance.max(initial=0.0) > 1:
        return "`found` has variances outside 0 to 1"
    if replicates.min(initial=0.0) < -5 or replicates.max(initial=0.0) > 6:
        return "`found` has replicates that no accuracies have"
    return None
