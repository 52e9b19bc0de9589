"""A client goes: the rest stay as they are, and it is said what that costs and whether they should regroup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcollab.coalitions.explain import names_in_words
from fedcollab.errors import InputError, unknown
from fedcollab.runs.membership.regroup import THRESHOLD, Regrouping, consider, limits_of
from fedcollab.distances.rows import removed
from fedcollab.runs.membership.state import State, Trained, Training, go_on
from fedcollab.wire.runtime import Runtime


@dataclass(frozen=True, eq=False)
class Leaving:
    """Who left whom, what staying costs the rest, and whether they should regroup."""

    client: str
    partners: Sequence[str]
    after: State
    regrouping: Regrouping
    trained: Trained | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
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
    federation: Runtime | None = None,
    seed: int = 0,
    retrain: bool = False,
    training: Training | None = None,
    threshold: float = THRESHOLD,
) -> Leaving:
    """Remove a client. With `retrain` its coalition is trained without it, from new weights unless `training` says so.

    federation   holds the clients that stay; needed for `retrain` alone
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
