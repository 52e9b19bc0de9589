"""One run: its directory, its stages, and its clients that come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcollab.lazy import lazily

if TYPE_CHECKING:
    from fedcollab.runs.pipeline import FedCollab, Fitted
    from fedcollab.runs.run import WAYS, Run, command, versions

__all__ = ["WAYS", "FedCollab", "Fitted", "Run", "command", "versions"]

__getattr__ = lazily(
    __name__,
    {
        **dict.fromkeys(("FedCollab", "Fitted"), "pipeline"),
        **dict.fromkeys(("WAYS", "Run", "command", "versions"), "run"),
    },
)
