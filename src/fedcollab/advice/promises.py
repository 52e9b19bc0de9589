"""What was promised to a coalition against what its members measured: a clear loss in place of a gain has a reason.

Gains are measured before training on rows of the members themselves (`advise`), and again after it on test rows. Where
the second is clearly below the first, and clearly a loss, the data changed in between, or a member did not train as it
did while it was measured. For a coalition with expected gains e_i, measured gains g_i and their variances,

    z = sum_i (g_i - e_i) / sqrt(sum_i var(g_i) + max(sum_i var(e_i), n^2 var(e)))     (how far below the promise)
    l = sum_i g_i / sqrt(sum_i var(g_i))                                               (how clearly a loss)

with n members and var(e) that of the mean gain, which errs for all of them at once,
are taken over all members but one, for each member in turn: no client can hide the others' loss by what it says of
itself. A coalition is named where z < -3 and l < -2 without one and the same member.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fedcollab.advice.result import Advice

Floats = NDArray[np.float64]

#: how far below its promise a coalition must be, in standard errors, and how clearly it must have lost
SHORT, LOST = -3.0, -2.0


@dataclass(frozen=True)
class BrokenPromise:
    """A coalition whose members lost where a gain was expected.

    Parameters
    ----------
    members : tuple of str
        The coalition.
    expected, measured : float
        The mean gain in log loss over training alone, before and after.
    errors : float
        How far the second is below the first, in standard errors.
    heaviest : str
        The member whose data weigh most in the models of the others.
    weight : float
        How much they weigh there on average, from 0 to 1.
    """

    members: tuple[str, ...]
    expected: float
    measured: float
    errors: float
    heaviest: str
    weight: float

    def __str__(self) -> str:
        who = ", ".join(self.members[:3]) + (f" and {len(self.members) - 3} more" if len(self.members) > 3 else "")
        return (
            f"{who} lost where a gain was expected: {self.measured:+.3f} in log loss over training alone instead of "
            f"{self.expected:+.3f} ({self.errors:.1f} standard errors). Their data changed since it was measured, or "
            f"one of them trains on other data than it said. The data of {self.heaviest} weigh most in the models of "
            f"the others ({100 * self.weight:.0f} %): train without it and compare."
        )


def broken_promises(advice: Advice, names: Sequence[str], gains: Floats, stderr: Floats) -> list[BrokenPromise]:
    """Return the coalitions of an advice whose members clearly lost where a gain was expected.

    Parameters
    ----------
    advice : Advice
        What was advised, and followed.
    names : sequence of str
        The clients of `gains`.
    gains, stderr : array
        What each measured on its test rows: the gain in log loss over training alone, and its standard error.
        Clients with NaN are left out.

    Returns
    -------
    list of BrokenPromise
        The worst first.
    """
    measured = {
        name: (gain, error)
        for name, gain, error in zip(names, gains.tolist(), stderr.tolist(), strict=True)
        if name in advice.gains and np.isfinite([gain, error]).all()
    }
    found = []
    for coalition in advice.candidate.coalitions:
        members = [name for name in coalition if name in measured]
        if len(members) < 2 or advice.candidate.kind == "alone":
            continue
        gain, error = np.array([measured[name] for name in members]).T
        expected = np.array([(advice.gains[name].loss.mean, advice.gains[name].loss.stderr) for name in members])
        together = ((len(members) - 1) * advice.candidate.gain.stderr) ** 2
        short = _without_each(gain - expected[:, 0], error**2, expected[:, 1] ** 2, least=together)
        lost = _without_each(gain, error**2)
        named = (short < SHORT) & (lost < LOST)
        if named.any():
            position = int(np.argmin(np.where(named, short, np.inf)))
            weights = _weights_in_others(advice, members)
            heaviest = int(np.argmax(weights))
            others = np.arange(len(members)) != position
            means = float(expected[others, 0].mean()), float(gain[others].mean())
            promise = tuple(members), *means, -float(short[position]), members[heaviest], float(weights[heaviest])
            found.append(BrokenPromise(*promise))
    return sorted(found, key=lambda promise: -promise.errors)


def _without_each(values: Floats, *variances: Floats, least: float = 0.0) -> Floats:
    """Return, for each member, the sum over the others in standard errors; 0 where nothing is uncertain.

    The last of the `variances` is at least `least`, summed over the others.
    """
    *first, last = (np.maximum(each.sum() - each, 0) for each in variances)
    spread = np.sqrt(sum(first, np.zeros_like(values)) + np.maximum(last, least))
    total = values.sum() - values
    counted: Floats = np.divide(total, spread, out=np.zeros_like(total), where=spread > 0)
    return counted


def _weights_in_others(advice: Advice, members: Sequence[str]) -> Floats:
    """Return how much each member's data weigh, on average, in the models of the other members."""
    rows = [advice.names.index(name) for name in members]
    weights = advice.weights[np.ix_(rows, rows)].copy()
    np.fill_diagonal(weights, 0)
    mean: Floats = weights.sum(axis=0) / (len(members) - 1)
    return mean
