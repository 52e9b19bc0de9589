"""What the ways of training are called: "as advised" where the run's training in coalitions follows its advice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedcollab.advice.words import how_in_words
from fedcollab.runs.run import WAYS

if TYPE_CHECKING:
    from fedcollab.advice.result import Advice
    from fedcollab.training import TrainingResult

ADVISED = "as advised"


def way_words(results: Mapping[str, TrainingResult], advice: Advice | None) -> dict[str, str]:
    """Return what each way of training is called.

    Parameters
    ----------
    results : mapping of TrainingResult
        What was trained, by way of training.
    advice : Advice or None
        The advice of the run, if it has one.

    Returns
    -------
    dict
        The words of `runs.run.WAYS`; "coalitions" is called "as advised" where that is so, or will be.
    """
    ours = results.get("coalitions")
    advised = advice is not None and (ours is None or follows(ours, advice))
    return {**WAYS, "coalitions": ADVISED} if advised else dict(WAYS)


def follows(result: TrainingResult, advice: Advice) -> bool:
    """Return whether a training is what was advised: the same clients together, by the same algorithm.

    Parameters
    ----------
    result : TrainingResult
        The training.
    advice : Advice
        The advice.
    """
    how, settings = advice.candidate, result.settings
    groups = {frozenset(members) for members in result.coalitions}
    if how.kind != "own weights" and groups != {frozenset(members) for members in how.coalitions}:
        return False
    if how.kind == "alone":
        return True  # whatever trains each client by itself
    options = settings.get("options") or {}
    same = how_in_words(result.method, settings.get("keep") or ()) == how_in_words(how.algorithm, how.keep)
    return same and all(options.get(key) == value for key, value in how.options.items())
