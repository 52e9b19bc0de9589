"""Should the clients regroup? The partition as it is against a fresh solve, with a threshold that a move must pay.

    excess = sum over R of bound_i(now) / sum over R of bound_i(best) - 1

R: the clients that would have to train again, those whose coalition in the best partition is not one of today's;
bound_i: the client's part of the objective. Nobody else's bound changes, so `excess` is what R leave on the table.
Regrouping is advised above `THRESHOLD`: below it the gain in the bound does not pay for training again, and coalitions
would flip with every small change of an estimate. Because R is a part of all clients, an objective that is more than
`THRESHOLD` above the best one is always advised against.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedcollab.coalitions import Collaboration, solve
from fedcollab.coalitions.explain import more_in_words
from fedcollab.coalitions.inputs import check_assignment, read_inputs
from fedcollab.coalitions.solve import Found, collaboration_of
from fedcollab.coalitions.solver.instance import TOLERANCE
from fedcollab.distances import Distances
from fedcollab.errors import number

#: a regrouping must lower the bound of those who train again by more than this share
THRESHOLD = 0.02


@dataclass(frozen=True, eq=False)
class Regrouping:
    """The partition as it is against the best one found, and whether changing pays.

    Parameters
    ----------
    now : Collaboration
        The partition as it is.
    best : Collaboration
        The best one found.
    threshold : float, default `THRESHOLD`
        What a regrouping must gain to be advised, as a share of the bound of those who would train again.
    """

    now: Collaboration
    best: Collaboration
    threshold: float = THRESHOLD

    @property
    def cost(self) -> float:
        """What staying costs: how far the objective is above the best one's, as a share of it."""
        return max(0.0, self.now.objective / self.best.objective - 1)

    @property
    def retrain(self) -> list[str]:
        """The clients that would have to train again."""
        today = {frozenset(members) for members in self.now.coalitions}
        return [name for members in self.best.coalitions if frozenset(members) not in today for name in members]

    @property
    def excess(self) -> float:
        """How far the bounds of the clients in `retrain`, summed, are above those of the best partition, as a share."""
        again = set(self.retrain)
        if not again:
            return 0.0
        assert self.now.names is not None
        chosen = np.array([name in again for name in self.now.names])
        return float(self.now.terms[chosen].sum() / self.best.terms[chosen].sum() - 1)

    @property
    def admissible(self) -> bool:
        """Whether the present partition respects the constraints (a client that left may have broken `min_size`)."""
        return self.now.constraints.admits(self.now.assignment)

    @property
    def advised(self) -> bool:
        """Whether the clients should regroup."""
        return not self.admissible or self.excess > self.threshold

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values, for JSON."""
        return {
            "advised": self.advised,
            "admissible": self.admissible,
            "cost_of_staying": self.cost,
            "excess": self.excess,
            "threshold": self.threshold,
            "retrain": self.retrain,
            "objective": self.now.objective,
            "best_objective": self.best.objective,
            "best_lower_bound": self.best.lower_bound,
            "best_coalitions": self.best.coalitions,
        }

    def __str__(self) -> str:
        if not self.retrain:
            return "Regrouping is not advised: solving from scratch gives the same coalitions."
        figures = (
            f"staying costs {more_in_words(self.cost)} (objective {self.now.objective:.4g} instead of "
            f"{self.best.objective:.4g}); {len(self.retrain)} of {len(self.now.assignment)} clients would train again "
            f"(for these alone: {more_in_words(self.excess)})"
        )
        if not self.admissible:
            return f"Regrouping is advised: the coalitions no longer respect the constraints ({figures})."
        if self.advised:
            return f"Regrouping is advised: {figures}."
        return f"Regrouping is not advised: {figures}; below {100 * self.threshold:g} % that does not pay for training."


def consider(
    distances: Distances,
    assignment: ArrayLike,
    C: float,
    limits: Mapping[str, Any],
    *,
    seed: int = 0,
    threshold: float = THRESHOLD,
    method: str = "placed",
) -> Regrouping:
    """Compare the partition as it is with one that is solved for from scratch.

    Parameters
    ----------
    distances : Distances
        The distances of all clients as they are now.
    assignment : array of int
        Each client's coalition now.
    C : float
        Weight of the generalisation term.
    limits : mapping
        The constraints, as `limits_of` returns them.
    seed : int, default 0
        Everything random in solving is derived from it.
    threshold : float, default `THRESHOLD`
        What a regrouping must gain to be advised, as a share of the bound.
    method : str, default "placed"
        How the present partition was found, for its record.
    """
    number("threshold", threshold, at_least=0)
    best = solve(distances, C=C, seed=seed, **limits)
    inputs = read_inputs(distances, None)
    labels = check_assignment(assignment, len(distances.names))
    now = collaboration_of(inputs, best.constraints, C, Found(labels, best.lower_bound, False, method))
    if best.constraints.admits(labels) and now.objective <= best.objective * (1 + TOLERANCE):
        # As good as the best: it wins the tie, so that nobody moves for nothing, and the proof holds for it too.
        now = best = collaboration_of(
            inputs, best.constraints, C, Found(labels, best.lower_bound, best.optimal, method)
        )
    return Regrouping(now, best, threshold)


def limits_of(collaboration: Collaboration, without: str | None = None) -> dict[str, Any]:
    """Return the constraints of a collaboration by client name, as `solve` takes them; without the client that left."""
    constraints, names = collaboration.constraints, collaboration.names
    assert names is not None

    def named(groups: Any) -> list[list[str]]:
        listed = [[names[client] for client in group if names[client] != without] for group in groups]
        return [group for group in listed if len(group) > 1]

    return {
        "must_link": named(constraints.together),
        "cannot_link": named(constraints.apart),
        "min_size": constraints.min_size,
        "max_size": constraints.max_size,
    }
