"""What a run knows at one moment, and how it is trained on when its clients change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedcollab.coalitions import Collaboration
from fedcollab.distances import Distances
from fedcollab.runs.membership.retrain import accuracies, checksums, merged, retrain
from fedcollab.progress import Progress, silent
from fedcollab.wire.runtime import Runtime
from fedcollab.training import TrainingResult


@dataclass(frozen=True, eq=False)
class State:
    """Distances, collaboration and, by way of training ("coalitions", "local"), what was trained."""

    distances: Distances
    collaboration: Collaboration
    results: Mapping[str, TrainingResult] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The clients."""
        return self.distances.names


@dataclass(frozen=True)
class Training:
    """How to train what changed: fine-tune from the saved model, or from `scratch`; for how many `rounds`."""

    scratch: bool = False
    rounds: int | None = None
    progress: Progress = silent


@dataclass(frozen=True, eq=False)
class Trained:
    """What training again gave: accuracies before, after and alone, by client; and whose model stayed as it was."""

    again: list[list[str]]
    rounds: int
    before: Mapping[str, float]
    after: Mapping[str, float]
    alone: Mapping[str, float]
    models_before: Mapping[str, str]
    models: Mapping[str, str]

    @property
    def unchanged(self) -> list[str]:
        """The clients whose model is the same, byte for byte."""
        return [name for name, digest in self.models.items() if self.models_before.get(name) == digest]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        keys = ("again", "rounds", "unchanged", "before", "after", "alone", "models_before", "models")
        return {key: getattr(self, key) for key in keys}

    def __str__(self) -> str:
        again = [name for members in self.again for name in members]
        if not again:
            return "No model was trained again."
        known = [name for name in again if name in self.before]
        text = f"Trained again for {self.rounds} rounds: {len(again)} of {len(self.after)} clients"
        if known:
            text += (
                f", accuracy of those who were trained before {_mean(self.before, known)} -> {_mean(self.after, known)}"
            )
        kept = len(self.unchanged)
        return f"{text}." + (f" The other {kept} keep their model byte for byte." if kept else "")


def go_on(
    state: State,
    federation: Runtime | None,
    collaboration: Collaboration,
    stale: Sequence[str],
    how: Training,
    *,
    again: Sequence[Sequence[str]],
) -> tuple[dict[str, TrainingResult], Trained | None]:
    """Results for the clients of `collaboration`: the coalitions in `again` and the local models of `stale` are new."""
    if "coalitions" not in state.results:
        return {}, None
    assert collaboration.names is not None
    names, old = collaboration.names, state.results["coalitions"]
    parts = []
    for members in again:
        assert federation is not None
        part = retrain(federation, old, members, scratch=how.scratch, rounds=how.rounds, progress=how.progress)
        parts.append(part)
    results = {"coalitions": merged(old, parts, names, collaboration.coalitions)}
    if "local" in state.results:
        lonely = [[name] for name in names]
        own = state.results["local"]
        new = [] if federation is None else [retrain(federation, own, [name], scratch=True) for name in stale]
        results["local"] = merged(own, new, names, lonely)
    trained = Trained(
        again=[list(members) for members in again],
        rounds=max((int(part.settings["rounds"]) for part in parts), default=0),
        before=accuracies(old),
        after=accuracies(results["coalitions"]),
        alone=accuracies(results["local"]) if "local" in results else {},
        models_before=checksums(old),
        models=checksums(results["coalitions"]),
    )
    return results, trained


def _mean(values: Mapping[str, float], names: Sequence[str]) -> str:
    return f"{100 * float(np.mean([values[name] for name in names])):.1f} %"
