"""A run directory, opened at whatever stage it is: what is there is shown, what is missing is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.distances import Distances
from fedcollab.errors import InputError
from fedcollab.runs.directory import RunDirectory
from fedcollab.wire import absence
from fedcollab.wire.absence import Absence

if TYPE_CHECKING:
    from fedcollab.coalitions import Collaboration, CPath
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
    absences: Sequence[Absence] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The clients, in the order of every array on the page."""
        return self.distances.names

    def accuracy(self, way: str) -> NDArray[np.float64] | None:
        """Each client's accuracy (of its personal model where there is one), in the order of `names`."""
        result = self.results.get(way)
        if result is None:
            return None
        by_name = dict(zip(result.names, result.reported, strict=True))
        return np.array([float(by_name.get(name, np.nan)) for name in self.names])


def read_run(directory: str | Path) -> Run:
    """Open a run directory; bad or foreign files end in one clear line."""
    store = RunDirectory(directory)
    if not store.path.is_dir():
        raise InputError(f"`directory` (={str(directory)!r}) does not exist; expected a run directory")
    if not store.has("distances.json"):
        raise InputError(
            f"`directory` (={str(directory)!r}) holds no distances.json; see `fedcollab run` or `fedcollab estimate`"
        )
    distances = Distances.load(store.file("distances.json"))
    config = store.config() if store.has("run.json") else {}
    collaboration = _collaboration(store, distances)
    path = _path(store, distances, collaboration)
    return Run(store.path, config, distances, path, collaboration, _results(store), absence.read(store.path))


#: clients up to which a path that membership changes have outdated is drawn again for the page, in seconds
REDRAWN = 20


def _path(store: RunDirectory, distances: Distances, collaboration: Collaboration | None) -> CPath | None:
    """The path as saved; drawn again where a client came or went since, where nothing is constrained."""
    from fedcollab.coalitions import CPath, c_path

    if store.has("path.json"):
        return CPath.load(store.file("path.json"))
    if collaboration is None or collaboration.constraints.any or len(distances.names) > REDRAWN:
        return None
    return c_path(distances)


def _collaboration(store: RunDirectory, distances: Distances) -> Collaboration | None:
    if not store.has("collaboration.json"):
        return None
    from fedcollab.coalitions import Collaboration

    found = Collaboration.load(store.file("collaboration.json"))
    others = found.names is not None and tuple(found.names) != distances.names
    if others or len(found.assignment) != len(distances.names):
        raise InputError(f"`{store.file('collaboration.json')}` is about other clients than distances.json")
    return found


def _results(store: RunDirectory) -> dict[str, TrainingResult]:
    there = [way for way in WAYS if store.has(f"training/{way}/training.json")]
    if not there:
        return {}
    from fedcollab.training import TrainingResult

    return {way: TrainingResult.load(store.file(f"training/{way}/training.json")) for way in there}
