"""How different are two clients' data, without moving data, and how sure are we?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcollab.distances.result import Distances
from fedcollab.lazy import lazily

if TYPE_CHECKING:
    from fedcollab.distances.check import EncoderCheck, check_encoder
    from fedcollab.distances.estimate import METHODS, estimate_distances
    from fedcollab.distances.update import complete, measure, missing_pairs, pair_count, removed, renewed

__all__ = [
    "METHODS",
    "Distances",
    "EncoderCheck",
    "check_encoder",
    "complete",
    "estimate_distances",
    "measure",
    "missing_pairs",
    "pair_count",
    "removed",
    "renewed",
]

# PyTorch is imported when something is estimated, not when a saved `Distances` is read.
__getattr__ = lazily(
    __name__,
    {
        "EncoderCheck": "check",
        "METHODS": "estimate",
        "check_encoder": "check",
        "estimate_distances": "estimate",
        **dict.fromkeys(("complete", "measure", "missing_pairs", "pair_count", "removed", "renewed"), "update"),
    },
)
