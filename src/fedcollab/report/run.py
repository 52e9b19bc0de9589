"""What a report shows of a run directory: what is there, at whatever stage it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.coalitions import Collaboration, CPath
from fedcollab.distances import Distances
from fedcollab.runs.run import Run
from fedcollab.wire import absence
from fedcollab.wire.absence import Absence

if TYPE_CHECKING:
    from fedcollab.training import TrainingResult


@dataclass(frozen=True, eq=False)
class RunContents:
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
        """Return each client's accuracy (of its personal model where there is one), in the order of `names`."""
        result = self.results.get(way)
        if result is None:
            return None
        by_name = dict(zip(result.names, result.reported, strict=True))
        return np.array([float(by_name.get(name, np.nan)) for name in self.names])


def read_run(directory: str | Path) -> RunContents:
    """Read all that a run directory holds.

    Raises
    ------
    InputError
        If it is no run, or its files are broken or about different clients.
    """
    run = Run.open(directory)
    return RunContents(
        run.path,
        run.config(),
        run.distances(),
        run.c_path(),
        run.collaboration(),
        run.results(),
        absence.read(run.path),
    )
