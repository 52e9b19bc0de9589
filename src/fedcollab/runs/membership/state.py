"""The state of a run at one moment, and how it is trained on when its clients change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedcollab.advice.fit import BoundFit
from fedcollab.coalitions import Collaboration
from fedcollab.distances import Distances
from fedcollab.federation import Federation
from fedcollab.progress import Progress, silent
from fedcollab.runs.membership.retraining import accuracies, checksums, merged, retrain, room, with_room
from fedcollab.tasks import CLASSIFICATION, TASKS, Task
from fedcollab.training import TrainingResult


@dataclass(frozen=True, eq=False)
class State:
    """What a run knows at one moment.

    Parameters
    ----------
    distances : Distances
        How different every two clients' data are.
    collaboration : Collaboration
        Who trains with whom.
    results : mapping of TrainingResult
        What was trained, by way of training ("coalitions", "local").
    fit : BoundFit or None
        The bound fitted to what the run's advice measured, where there is one.
    """

    distances: Distances
    collaboration: Collaboration
    results: Mapping[str, TrainingResult] = field(default_factory=dict)
    fit: BoundFit | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all clients."""
        return self.distances.names


@dataclass(frozen=True)
class Training:
    """How to train coalitions that changed.

    Parameters
    ----------
    scratch : bool, default False
        Train from new weights instead of from the saved model.
    rounds : int, optional
        Rounds of that training; by default a fifth of the run's, or all where it starts from new weights.
    progress : callable, optional
        Called with (done, total).
    """

    scratch: bool = False
    rounds: int | None = None
    progress: Progress = silent


@dataclass(frozen=True, eq=False)
class Trained:
    """What training again gave.

    Parameters
    ----------
    again : list of lists of str
        The coalitions that were trained again.
    rounds : int
        For how many rounds.
    before, after, alone : mapping of float
        Each client's accuracy (or R2) before, now, and trained alone.
    models_before, models : mapping of str
        The SHA-256 of the model that each client used before and uses now.
    task : Task
        What models predict.
    """

    again: list[list[str]]
    rounds: int
    before: Mapping[str, float]
    after: Mapping[str, float]
    alone: Mapping[str, float]
    models_before: Mapping[str, str]
    models: Mapping[str, str]
    task: Task = TASKS[CLASSIFICATION]

    @property
    def unchanged(self) -> list[str]:
        """The clients whose model is the same as before, byte for byte."""
        return [name for name, digest in self.models.items() if self.models_before.get(name) == digest]

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain values, for JSON."""
        keys = ("again", "rounds", "unchanged", "before", "after", "alone", "models_before", "models")
        return {key: getattr(self, key) for key in keys}

    def __str__(self) -> str:
        again = [name for members in self.again for name in members]
        if not again:
            return "No model was trained again."
        known = [name for name in again if name in self.before]
        rounds = f"{self.rounds} round{'' if self.rounds == 1 else 's'}"
        text = f"Trained again for {rounds}: {len(again)} of {len(self.after)} clients"
        if known:
            text += f", {self.task.score} of those who were trained before {_mean(self.before, known)} -> "
            text += _mean(self.after, known)
        kept = len(self.unchanged)
        return f"{text}." + (f" The other {kept} keep their model byte for byte." if kept else "")


def go_on(
    state: State,
    federation: Federation | None,
    collaboration: Collaboration,
    stale: Sequence[str],
    how: Training,
    *,
    again: Sequence[Sequence[str]],
) -> tuple[dict[str, TrainingResult], Trained | None]:
    """Train again where something changed, and keep all other models.

    Parameters
    ----------
    state : State
        The run as it was.
    federation : Federation or None
        The clients; needed only if something is trained.
    collaboration : Collaboration
        The coalitions as they are now.
    stale : sequence of str
        Clients that are new or whose data changed: their models trained alone are trained again.
    how : Training
        From which weights, and for how many rounds.
    again : sequence of sequences of str
        The coalitions that are trained again.

    Returns
    -------
    tuple of (dict of TrainingResult, Trained or None)
        Results for the clients of `collaboration` by way of training, and what training gave; an empty dict and None
        where the run has no models yet.
    """
    if "coalitions" not in state.results:
        return {}, None
    assert collaboration.names is not None
    names, old = collaboration.names, state.results["coalitions"]
    results, parts = {}, []
    if "local" in state.results:  # first: what a silo trains last is the model that it uses
        lonely = [[name] for name in names]
        own = state.results["local"]
        new = [] if federation is None else [retrain(federation, own, [name], scratch=True) for name in stale]
        results["local"] = merged(own, new, names, lonely)
    for members in again:
        assert federation is not None
        part = retrain(federation, old, members, scratch=how.scratch, rounds=how.rounds, progress=how.progress)
        parts.append(part)
    results["coalitions"] = merged(old, parts, names, collaboration.coalitions)
    trained = Trained(
        again=[list(members) for members in again],
        rounds=max((int(part.settings["rounds"]) for part in parts), default=0),
        before=accuracies(old),
        after=accuracies(results["coalitions"]),
        alone=accuracies(results["local"]) if "local" in results else {},
        models_before=checksums(with_room(old, room(results["coalitions"]))),
        models=checksums(results["coalitions"]),
        task=old.scores.task,
    )
    return results, trained


def _mean(values: Mapping[str, float], names: Sequence[str]) -> str:
    """Return the mean accuracy of some clients as text."""
    return f"{100 * float(np.mean([values[name] for name in names])):.1f} %"
