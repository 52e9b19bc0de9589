"""After the first day: clients come, go and change; the collaboration is kept up, explained and recorded."""

from __future__ import annotations

from fedcollab.runs.membership.check import Check, apply, check
from fedcollab.runs.membership.history import (
    entries,
    keep_change,
    keep_joining,
    keep_leaving,
    open_results,
    open_state,
    recover,
)
from fedcollab.runs.membership.join import Joining, join
from fedcollab.runs.membership.leave import Leaving, leave
from fedcollab.runs.membership.regroup import THRESHOLD, Regrouping
from fedcollab.runs.membership.state import State, Trained, Training

__all__ = [
    "THRESHOLD",
    "Check",
    "Joining",
    "Leaving",
    "Regrouping",
    "State",
    "Trained",
    "Training",
    "apply",
    "check",
    "entries",
    "join",
    "keep_change",
    "keep_joining",
    "keep_leaving",
    "leave",
    "open_results",
    "open_state",
    "recover",
]
