"""After the first day: clients come, go and change; the collaboration is kept up, explained and recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcollab.lazy import lazily

if TYPE_CHECKING:
    from fedcollab.runs.membership.changes import Check, apply, check
    from fedcollab.runs.membership.history import entries, keep_change, keep_joining, keep_leaving, open_state
    from fedcollab.runs.membership.joining import Joining, join
    from fedcollab.runs.membership.leaving import Leaving, leave
    from fedcollab.runs.membership.regroup import THRESHOLD, Regrouping
    from fedcollab.runs.membership.retraining import retrain
    from fedcollab.runs.membership.state import State, Trained, Training

_HOMES = {
    **dict.fromkeys(("Check", "apply", "check"), "changes"),
    **dict.fromkeys(("entries", "keep_change", "keep_joining", "keep_leaving", "open_state"), "history"),
    **dict.fromkeys(("Joining", "join"), "joining"),
    **dict.fromkeys(("Leaving", "leave"), "leaving"),
    **dict.fromkeys(("THRESHOLD", "Regrouping"), "regroup"),
    "retrain": "retraining",
    **dict.fromkeys(("State", "Trained", "Training"), "state"),
}
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
    "open_state",
    "retrain",
]

__getattr__ = lazily(__name__, _HOMES)
