"""A run directory, opened at whatever stage it is: what is there is shown, what is missing is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.coalitions import Collaboration, CPath
from fedcollab.distances import Distances
from fedcollab.errors import InputError
from fedcollab.store import RunDirectory
from fedcollab.training import TrainingResult

#: the ways of training that a run compares, and their words
WAYS = {"local": "alone", "global": "everyone together", "coalitions": "in coalitions"}


@dataclass(frozen=True, eq=False)
class Run:
    """What the stages left: `distances` is always there, the rest as far as the run has come."""

    directory: Path
    config: Mapping[str, Any]
    distances: Distances
    path: CPath | None
    collaboration: Collaboration | None
    results: Mapping[str, TrainingResult]

    @property
    def names(self) -> tuple[str, ...]:
        """The clients, in the order of every array on the page."""
        return self.distances.names

    def accuracy(self, way: str) -> NDArray[np.float64] | None:
        """Each client's accuracy (of its personal model where there is one), in the order of `names`."""
        result = self.results.get(way)
        if result is None:
            return None
        values = result.accuracy if result.personal_accuracy is None else result.personal_accuracy
        by_name = dict(zip(result.names, values, strict=True))
        return np.array([float(by_name.get(name, np.nan)) for name in self.names])


def read_run(directory: str | Path) -> Run:
    """Open a run directory; bad or foreign files end in one clear line."""
    store = RunDirectory(directory)
    if not store.path.is_dir():
        raise InputError(f"`directory` (={str(directory)!r}) does not exist; expected a run directory")
    if not store.has("distances.json"):
        raise InputError(
            f"`directory` (={str(directory)!r}) holds no distances.json yet; run `fedcollab run` or `fedcollab estimate`"
        )
    distances = Distances.load(store.file("distances.json"))
    path = CPath.load(store.file("path.json")) if store.has("path.json") else None
    collaboration = None
    if store.has("collaboration.json"):
        collaboration = Collaboration.load(store.file("collaboration.json"))
        if len(collaboration.assignment) != len(distances.names) or (
            collaboration.names is not None and tuple(collaboration.names) != distances.names
        ):
            raise InputError(f"`{store.file('collaboration.json')}` is about other clients than distances.json")
    results = {
        way: TrainingResult.load(store.file(f"training/{way}/training.json"))
        for way in WAYS
        if store.has(f"training/{way}/training.json")
    }
    config = store.config() if store.has("run.json") else {}
    return Run(store.path, config, distances, path, collaboration, results)
