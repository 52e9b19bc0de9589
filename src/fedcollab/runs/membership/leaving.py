"""A client goes: the rest stay as they are, with what that costs them and whether they should regroup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcollab.coalitions.explain import names_in_words
from fedcollab.distances import removed
from fedcollab.errors import InputError, unknown
from fedcollab.federation import Federation
from fedcollab.runs.membership.regroup import THRESHOLD, Regrouping, consider, limits_of
from fedcollab.runs.membership.state import State, Trained, Training, go_on


@dataclass(frozen=True, eq=False)
class Leaving:
    """Who left whom, what staying costs the rest, and whether they should regroup.

    Parameters
    ----------
    client : str
        The client that left.
    partners : sequence of str
        Those that it trained with.
    after : State
        Distances, collaboration and training results without it.
    regrouping : Regrouping
        The partition without it against the best one.
    trained : Trained or None
        What training again gave; None where the run has no models yet.
    """

    client: str
    partners: Sequence[str]
    after: State
    regrouping: Regrouping
    trained: Trained | None

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as plain values, for JSON."""
        return {
            "client": self.client,
            "partners": list(self.partners),
            "coalitions": self.after.collaboration.coalitions,
            "objective": self.after.collaboration.objective,
            "lower_bound": self.after.collaboration.lower_bound,
            "C": self.after.collaboration.C,
            "training": None if self.trained is None else self.trained.as_dict(),
            "regrouping": self.regrouping.as_dict(),
        }

    def __str__(self) -> str:
        if not self.partners:
            lines = [f"{self.client} left; it was alone, so nobody else is concerned."]
        else:
            lines = [f"{self.client} left {names_in_words(tuple(self.partners), None)}, who stay together."]
            if self.trained is not None and self.trained.again:
                lines.append(str(self.trained))
            elif self.trained is not None:
                lines.append(f"Their model still holds what it learnt from {self.client}; `--retrain` trains it anew.")
        return "\n".join([*lines, str(self.regrouping)])


def leave(
    state: State,
    name: str,
    *,
    federation: Federation | None = None,
    seed: int = 0,
    retrain: bool = False,
    training: Training | None = None,
    threshold: float = THRESHOLD,
) -> Leaving:
    """Remove a client from a run.

    Parameters
    ----------
    state : State
        The run as it is.
    name : str
        The client that leaves.
    federation : Federation, optional
        The clients that stay; needed for `retrain` only.
    seed : int, default 0
        Everything random in solving is derived from it.
    retrain : bool, default False
        Train its coalition again without it.
    training : Training, optional
        How to train; by default from new weights, so that nothing learnt from the client remains.
    threshold : float, default `THRESHOLD`
        What a regrouping must gain to be advised, as a share of the bound.

    Returns
    -------
    Leaving
        Whom it left, what that costs, and the state of the run without it.

    Raises
    ------
    InputError
        If the client is unknown or one of the last two, or `retrain` comes without `federation`.
    """
    if name not in state.names:
        raise InputError(unknown("client", name, state.names))
    if len(state.names) < 3:
        raise InputError(f"`client` (={name!r}) cannot leave: a federation of one is none")
    if retrain and federation is None:
        raise InputError("`--retrain` needs the data of those who stay: give `--clients` FOLDER")
    old = state.collaboration
    distances = removed(state.distances, name)
    labels = np.array([label for label, other in zip(old.assignment, state.names, strict=True) if other != name])
    regrouping = consider(distances, labels, old.C, limits_of(old, without=name), seed=seed, threshold=threshold)
    partners = [other for members in old.coalitions if name in members for other in members if other != name]
    again = [partners] if retrain and partners else []
    how = training or Training(scratch=True)
    results, trained = go_on(state, federation, regrouping.now, [], how, again=again)
    return Leaving(name, partners, State(distances, regrouping.now, results), regrouping, trained)
