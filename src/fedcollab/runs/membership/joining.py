"""A client comes (Section "New Training Clients"): N distances, a place by the objective, one coalition trains on.

The existing coalitions stay as they are. The newcomer's distances to the existing clients are estimated by the method
and settings of the run, it is placed where the objective rises least (alone, if that is best), and only the coalition
that it joins goes on training, from its saved model. A fresh solve is compared with this and reported, not applied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcollab.coalitions import Collaboration, Placement, place
from fedcollab.distances import Distances, measure, pair_count, renewed
from fedcollab.errors import InputError
from fedcollab.federation import Federation
from fedcollab.progress import Progress, silent
from fedcollab.runs.membership.answers import require_clients, require_measured, require_trained
from fedcollab.runs.membership.regroup import THRESHOLD, Regrouping, consider, limits_of
from fedcollab.runs.membership.state import State, Trained, Training, go_on
from fedcollab.tasks import CLASSIFICATION, TASKS

if TYPE_CHECKING:
    from fedcollab.training import TrainingResult


@dataclass(frozen=True, eq=False)
class Joining:
    """A newcomer's place and why, what training gave, and whether regrouping is advised.

    Parameters
    ----------
    client : str
        The newcomer.
    placement : Placement
        Where it is placed, against all other places.
    pairs : int
        How many pairs were estimated for it.
    after : State
        Distances, collaboration and training results with it.
    regrouping : Regrouping
        The partition with it against the best one.
    trained : Trained or None
        What training on gave; None where the run has no models yet.
    expected : float or None
        What the newcomer is expected to gain over training alone, in log loss, by the bound that was fitted to the
        run's measurements; None where it has none, or one that explains too little.
    fitted : Fitted, optional
        To go on with in Python, where it came from `Fitted.join`.
    """

    client: str
    placement: Placement
    pairs: int
    after: State
    regrouping: Regrouping
    trained: Trained | None
    expected: float | None = None
    fitted: Any = None

    @property
    def distances(self) -> Distances:
        """The distances with the newcomer, which comes last."""
        return self.after.distances

    @property
    def collaboration(self) -> Collaboration:
        """The collaboration with the newcomer in its place."""
        return self.after.collaboration

    @property
    def training(self) -> TrainingResult | None:
        """The training result in coalitions, where the run was trained."""
        return self.after.results.get("coalitions")

    @property
    def alone(self) -> bool:
        """Whether the newcomer does best alone."""
        return self.placement.coalition is None

    @property
    def resolve_advised(self) -> bool:
        """Whether solving from scratch gains enough to pay for training again."""
        return self.regrouping.advised

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as plain values, for JSON."""
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
            "expected_gain": self.expected,
            "training": None if self.trained is None else self.trained.as_dict(),
            "regrouping": self.regrouping.as_dict(),
        }

    def __str__(self) -> str:
        lines = [str(self.placement)]
        if self.alone:
            lines.append("Alone is best: every coalition costs more by unlike data than it brings by more data.")
        elif self.expected is not None:
            verb = "gain" if self.expected >= 0 else "lose"
            lines.append(
                f"{self.client} is expected to {verb} {abs(self.expected):.3f} in {self._loss} there, against training "
                "alone, by the bound fitted to what was measured: a rough figure."
            )
        lines.append(f"{self.pairs} pairs were estimated; the other coalitions stay as they are.")
        if self.trained is not None:
            lines.append(self._gain(self.trained))
        return "\n".join([*lines, str(self.regrouping)])

    @property
    def _loss(self) -> str:
        """What the loss is called."""
        return (TASKS[CLASSIFICATION] if self.trained is None else self.trained.task).loss

    def _gain(self, trained: Trained) -> str:
        """Return a sentence on what training gave, to the newcomer in particular."""
        text = str(trained)
        if self.client in trained.alone:
            now, own = trained.after[self.client], trained.alone[self.client]
            what = f" {trained.task.score}" if trained.task.numeric else ""
            text += f" {self.client}:{what} {100 * own:.1f} % alone, {100 * now:.1f} % now."
        return text


def join(
    state: State,
    federation: Federation,
    name: str,
    *,
    seed: int = 0,
    training: Training | None = None,
    threshold: float = THRESHOLD,
    progress: Progress = silent,
) -> Joining:
    """Add a client to a run.

    Parameters
    ----------
    state : State
        The run as it is.
    federation : Federation
        All clients of `state`, and the newcomer.
    name : str
        The newcomer.
    seed : int, default 0
        Everything random in solving is derived from it.
    training : Training, optional
        How its coalition trains on; where the run has no models yet, nothing is trained.
    threshold : float, default `THRESHOLD`
        What a regrouping must gain to be advised, as a share of the bound.
    progress : callable, optional
        Called with (done, total) while distances are estimated.

    Returns
    -------
    Joining
        Its place and why, and the state of the run with it.

    Raises
    ------
    InputError
        If the client is in the run already, or `federation` is of other clients.
    Paused
        If a distance of the newcomer could not be measured, or it did not take part in the training; the run is as it
        was, and the same call goes on.
    """
    if name in state.names:
        raise InputError(f"`client` (={name!r}) is in this run already; to see whether it changed: fedcollab check")
    require_clients(federation, state.names, "a client of this run, to which the newcomer is compared")
    require_clients(federation, [name], "the newcomer")
    known = [*state.names, name]
    if set(federation.names) != set(known):
        stranger = next(other for other in federation.names if other not in known)
        raise InputError(f"`clients` holds {stranger!r}, which is not a client of this run")
    row = measure(state.distances, federation, name, progress)
    require_measured(row, name)
    distances = renewed(state.distances, row, name)
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
    require_trained(state.results.get("coalitions"), results.get("coalitions"), name)
    expected = placement.gain(state.fit.a, state.fit.b) if state.fit is not None and state.fit.tells else None
    after = State(distances, collaboration, results)
    return Joining(name, placement, pair_count(row), after, regrouping, trained, expected)
