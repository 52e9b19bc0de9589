"""A client comes (Section "New Training Clients"): N distances, a place by the objective, one coalition trains on.

The existing coalitions stay as they are. The newcomer's distances to the existing clients are estimated by the method
and settings of the run, it is placed where the objective rises least (alone, if that is best), and only the coalition
that it joins goes on training, from its saved model. Whether a fresh solve would do better is said, not done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcollab.coalitions import Collaboration, Placement, place
from fedcollab.distances import Distances
from fedcollab.errors import InputError
from fedcollab.runs.membership.regroup import THRESHOLD, Regrouping, consider, limits_of
from fedcollab.distances.rows import added, measure, pairs_of
from fedcollab.runs.membership.state import State, Trained, Training, go_on
from fedcollab.progress import Progress, silent
from fedcollab.wire.runtime import Runtime

if TYPE_CHECKING:
    from fedcollab.runs.pipeline import Fitted
    from fedcollab.training import TrainingResult


@dataclass(frozen=True, eq=False)
class Joining:
    """A newcomer's place and why, what training gave, and whether regrouping is advised.

    pairs     how many pairs were estimated for it
    after     distances, collaboration and training results with it
    fitted    to go on with in Python, where it came from `Fitted.join`
    """

    client: str
    placement: Placement
    pairs: int
    after: State
    regrouping: Regrouping
    trained: Trained | None
    fitted: Fitted | None = None

    @property
    def distances(self) -> Distances:
        """With the newcomer, at the end."""
        return self.after.distances

    @property
    def collaboration(self) -> Collaboration:
        """With the newcomer in its place."""
        return self.after.collaboration

    @property
    def training(self) -> TrainingResult | None:
        """In coalitions, where the run was trained."""
        return self.after.results.get("coalitions")

    @property
    def alone(self) -> bool:
        """Whether it is best for the newcomer to be alone."""
        return self.placement.coalition is None

    @property
    def resolve_advised(self) -> bool:
        """Whether a fresh solve is worth its retraining."""
        return self.regrouping.advised

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "client": self.client,
            "alone": self.alone,
            "coalitions": self.collaboration.coalitions,
            "objective": self.collaboration.objective,
            "lower_bound": self.collaboration.lower_bound,
            "C": self.collaboration.C,
            "pairs_estimated": self.pairs,
            "placement": self.placement.as_dict(),
            "distances": dict(zip(self.distances.names[:-1], self.distances.matrix[-1].tolist(), strict=False)),
            "training": None if self.trained is None else self.trained.as_dict(),
            "regrouping": self.regrouping.as_dict(),
        }

    def __str__(self) -> str:
        lines = [str(self.placement)]
        if self.alone:
            lines.append("Alone is best: every coalition costs more by unlike data than it brings by more data.")
        lines.append(f"{self.pairs} pairs were estimated; the other coalitions stay as they are.")
        if self.trained is not None:
            lines.append(self._gain(self.trained))
        return "\n".join([*lines, str(self.regrouping)])

    def _gain(self, trained: Trained) -> str:
        text = str(trained)
        if self.client in trained.alone:
            now, own = trained.after[self.client], trained.alone[self.client]
            text += f" {self.client}: {100 * own:.1f} % alone, {100 * now:.1f} % now."
        return text


def join(
    state: State,
    federation: Runtime,
    name: str,
    *,
    seed: int = 0,
    training: Training | None = None,
    threshold: float = THRESHOLD,
    progress: Progress = silent,
) -> Joining:
    """Add the client `name` of `federation`, which holds it and all clients of `state`.

    training   how the coalition trains on; where the run has no models yet, nothing is trained
    """
    if name in state.names:
        raise InputError(f"`client` (={name!r}) is in this run already; to see whether it changed: fedcollab check")
    missing = [other for other in state.names if other not in federation.names]
    if missing:
        raise InputError(f"`clients` lacks {missing[0]!r}, a client of this run, to which the newcomer is compared")
    known = [*state.names, name]
    if set(federation.names) != set(known):
        stranger = next(other for other in federation.names if other not in known)
        raise InputError(f"`clients` holds {stranger!r}, which is not a client of this run")
    row = measure(state.distances, federation, name, progress)
    distances = added(state.distances, row, name)
    quantity = float(distances.quantities[-1])
    placement = place(state.collaboration, distances.matrix[-1, :-1], quantity, name=name)
    labels = state.collaboration.assignment
    mine = labels.max() + 1 if placement.coalition is None else placement.coalition
    regrouping = consider(
        distances,
        np.append(labels, mine),
        state.collaboration.C,
        limits_of(state.collaboration),
        seed=seed,
        threshold=threshold,
    )
    collaboration = regrouping.now
    coalition = next(members for members in collaboration.coalitions if name in members)
    results, trained = go_on(state, federation, collaboration, [name], training or Training(), again=[coalition])
    return Joining(name, placement, pairs_of(row), State(distances, collaboration, results), regrouping, trained)
