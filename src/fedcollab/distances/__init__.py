"""How different are two clients' data, without moving data, and how sure are we?"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedcollab.distances.result import Distances

if TYPE_CHECKING:
    from fedcollab.distances.check import EncoderCheck, check_encoder
    from fedcollab.distances.estimate import METHODS, estimate_distances
    from fedcollab.distances.newcomer import estimate_newcomer

__all__ = ["METHODS", "Distances", "EncoderCheck", "check_encoder", "estimate_distances", "estimate_newcomer"]

_HOME = {
    "EncoderCheck": "fedcollab.distances.check",
    "METHODS": "fedcollab.distances.estimate",
    "check_encoder": "fedcollab.distances.check",
    "estimate_distances": "fedcollab.distances.estimate",
    "estimate_newcomer": "fedcollab.distances.newcomer",
}


def __getattr__(name: str) -> Any:
    """PyTorch is imported when something is estimated, not when a saved `Distances` is read."""
    if name not in _HOME:
        raise AttributeError(f"module 'fedcollab.distances' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
