"""What more rows would bring a run's clients alone: training/learning_curve.json, never of another training alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fedcollab import files
from fedcollab.runs.run import Run
from fedcollab.training.learning_curve import LearningCurve

FILE = "training/learning_curve.json"
ALONE = "training/local/training.json"


def read_learning_curve(run: Run) -> LearningCurve | None:
    """Return the learning curve of the clients of a run.

    Parameters
    ----------
    run : Run
        The run.

    Returns
    -------
    LearningCurve or None
        None if it is not there, or belongs to another training alone than the one that is there now.
    """
    if not run.has(FILE) or not run.has(ALONE):
        return None
    made = files.read_made(run.file(FILE))
    if made is None or made["inputs"].get(ALONE) != run.digest(ALONE):
        return None
    return LearningCurve.load(run.file(FILE))


def keep_learning_curve(
    run: Run, settings: Mapping[str, Any], inputs: Mapping[str, Any], measure: Callable[[], LearningCurve]
) -> LearningCurve:
    """Return the learning curve that a run has for these settings; measure and save it if there is none.

    Parameters
    ----------
    run : Run
        The run, in which the clients have been trained alone.
    settings : mapping
        All settings of that training.
    inputs : mapping
        What the training was made of.
    measure : callable
        Measures the curve.
    """
    made = {"settings": settings, "inputs": {**inputs, ALONE: run.digest(ALONE)}}

    def compute() -> LearningCurve:
        found = measure()
        found.save(run.file(FILE), made)
        return found

    return run.stage(FILE, LearningCurve.load, made, compute)
