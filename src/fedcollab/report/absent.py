"""Whose figures are missing: clients that did not answer when a training was measured at its end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedcollab.report.words import range_of_names
from fedcollab.runs.run import WAYS

if TYPE_CHECKING:
    from fedcollab.training import TrainingResult


def unmeasured(results: Mapping[str, TrainingResult], ways: Mapping[str, str] = WAYS) -> list[str]:
    """Return a sentence for each way of training at whose end clients did not answer, so that figures lack them.

    Parameters
    ----------
    results : mapping of TrainingResult
        What was trained, by way of training.
    ways : mapping of str
        What each way is called (see `ways.way_words`).
    """
    lines = []
    for way, result in results.items():
        missing = [name for name, value in zip(result.names, result.reported, strict=True) if math.isnan(value)]
        if missing:
            lines.append(
                f"{range_of_names(missing)} did not answer at the end of training {ways.get(way, way)}: its figures, "
                f"IPR and RSD are of {len(result.names) - len(missing)} of {len(result.names)} clients."
            )
    return lines
