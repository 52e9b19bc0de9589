"""How the trainings of a run compare on the same test samples: training/comparison.json, never of other trainings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedcollab import files, training
from fedcollab.runs.run import WAYS, Run
from fedcollab.training.comparison import Comparison

if TYPE_CHECKING:
    from fedcollab.federation import Federation
    from fedcollab.training import TrainingResult

FILE = "training/comparison.json"


def read_comparison(run: Run) -> Comparison | None:
    """Return how the trainings of a run compare on the same test samples.

    Parameters
    ----------
    run : Run
        The run.

    Returns
    -------
    Comparison or None
        None if it is not there, or is of other trainings than those that are there now.
    """
    if not run.has(FILE):
        return None
    made = files.read_made(run.file(FILE))
    if made is None or made["inputs"] != _digests(run):
        return None
    return Comparison.load(run.file(FILE))


def keep_comparison(run: Run, federation: Federation, results: Mapping[str, TrainingResult]) -> Comparison:
    """Compare the trainings of a run and save the result, unless it is there already.

    Parameters
    ----------
    run : Run
        The run.
    federation : Federation
        The clients.
    results : mapping of TrainingResult
        The run's trainings, by way of training.
    """
    known = read_comparison(run)
    if known is not None and set(known.models) >= set(results):
        return known
    found = training.compare(federation, results)
    if training.MAJORITY in found.models:  # otherwise silos did not answer: ask them again the next time
        found.save(run.file(FILE), {"settings": {"ways": list(results)}, "inputs": _digests(run)})
    return found


def _digests(run: Run) -> dict[str, str]:
    """Return the SHA-256 of the file of every training of a run."""
    names = [f"training/{way}/training.json" for way in WAYS]
    return {name: run.digest(name) for name in names if run.has(name)}
