"""Real federations for the benchmarks: tables with natural clients, in splits that every benchmark shares.

The folder FEDCOLLAB_DATA/federations/NAME/CLIENT.csv holds features and a text column `label` (`fedcollab data get
federations`). Splits are those of `fedcollab.scenarios.federation_clients`: at most 20 clients, of each 70 % of its
rows for training (at most 400) and the rest for testing (at most 1,000). The four heart hospitals are the seventeenth.
Five were looked at only after every choice was made (`ASIDE`).
"""

from __future__ import annotations

from fedcollab.reproduce.federation_cells import ASIDE, cached
from fedcollab.scenarios import federation_clients as load
from fedcollab.scenarios import federation_names
from fedcollab.scenarios.federation import TRAINING

__all__ = ["ASIDE", "TRAINING", "cached", "load", "names"]


def names() -> list[str]:
    """Return the federations that are on this machine."""
    found = federation_names()
    if not set(found) - {"heart"}:
        raise SystemExit("set FEDCOLLAB_DATA to the folder that holds federations/NAME/CLIENT.csv")
    return found
