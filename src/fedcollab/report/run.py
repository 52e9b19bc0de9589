"""What a report shows of a run directory, at whatever stage the run is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcollab import inspection
from fedcollab.advice.result import Advice
from fedcollab.coalitions import Collaboration, CPath
from fedcollab.distances import Distances
from fedcollab.inspection import Inspection
from fedcollab.report.judgement import Judgement
from fedcollab.runs.comparing import read_comparison
from fedcollab.runs.learning_curve import read_learning_curve
from fedcollab.runs.run import Run
from fedcollab.tasks import CLASSIFICATION, TASKS, Task
from fedcollab.wire import absence
from fedcollab.wire.absence import Absence

if TYPE_CHECKING:
    from fedcollab.training import TrainingResult
    from fedcollab.training.comparison import Comparison
    from fedcollab.training.learning_curve import LearningCurve


@dataclass(frozen=True, eq=False)
class RunContents:
    """What the stages of a run left.

    Parameters
    ----------
    directory : Path
        The run directory.
    config : mapping
        The content of run.json.
    distances : Distances
        The distances, which are always there.
    path : CPath or None
        The coalitions for every C, if the run has come so far.
    collaboration : Collaboration or None
        Who should train with whom, if the run has come so far.
    results : mapping of TrainingResult
        What was trained, by way of training.
    absences : sequence of Absence
        Who did not answer, when and why.
    inspection : Inspection or None
        What the data check found, if the run began with one.
    comparison : Comparison or None
        How the trainings compare on the same test samples, if that is known.
    curve : LearningCurve or None
        What clients reach alone with half of their rows, if that was measured.
    advice : Advice or None
        What was advised, if that was measured, with the clients in the order of `names`; `collaboration` then holds its
        coalitions.
    """

    directory: Path
    config: Mapping[str, Any]
    distances: Distances
    path: CPath | None
    collaboration: Collaboration | None
    results: Mapping[str, TrainingResult]
    absences: Sequence[Absence] = ()
    inspection: Inspection | None = None
    comparison: Comparison | None = None
    curve: LearningCurve | None = None
    advice: Advice | None = None

    @cached_property
    def judgement(self) -> Judgement | None:
        """What the trainings mean, or None where nothing was trained."""
        if not self.results:
            return None
        return Judgement.of(
            self.results, self.comparison, self.names, self.curve, self.advice, self.distances.quantities.tolist()
        )

    @property
    def task(self) -> Task:
        """What models predict, and what the figures are called."""
        if self.advice is not None:
            return self.advice.task
        return TASKS[CLASSIFICATION] if self.judgement is None else self.judgement.task

    @property
    def names(self) -> tuple[str, ...]:
        """The clients, in the order of every array on the page."""
        return self.distances.names

    def accuracy(self, way: str) -> NDArray[np.float64] | None:
        """Return each client's accuracy (of its personal model where there is one), in the order of `names`.

        Parameters
        ----------
        way : {"local", "global", "coalitions"}
            The way of training.

        Returns
        -------
        array or None
            NaN for a client without a result; None where nothing was trained that way.
        """
        result = self.results.get(way)
        if result is None:
            return None
        by_name = dict(zip(result.names, result.reported, strict=True))
        return np.array([float(by_name.get(name, np.nan)) for name in self.names])


def read_run(directory: str | Path) -> RunContents:
    """Read all that a run directory holds.

    Parameters
    ----------
    directory : str or Path
        The run directory.

    Returns
    -------
    RunContents
        What the stages left.

    Raises
    ------
    InputError
        If it is no run, or its files are broken or about different clients.
    """
    run = Run.open(directory)
    distances, advice = run.distances(), run.advice()
    return RunContents(
        run.path,
        run.config(),
        distances,
        run.c_path(),
        run.collaboration(),
        run.results(),
        absence.read(run.path),
        inspection.read_beside(run.path),
        read_comparison(run),
        read_learning_curve(run),
        None if advice is None else advice.in_order(distances.names),
    )
