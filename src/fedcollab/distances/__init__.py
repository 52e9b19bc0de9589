"""How different are two clients' data, without moving data, and how sure are we?"""

from __future__ import annotations

from fedcollab.distances.result import Distances

__all__ = ["Distances"]
