"""Clustered federated learning that FedCollab is compared to: IFCA, FedCluster, FeSEM and KMeans.

Each is a `Grouping`: it decides who is in which cluster, before or during training. Everything else (rounds, local
training, metrics, files) is `fedcollab.training`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcollab.lazy import lazily

if TYPE_CHECKING:
    from fedcollab.baselines.registry import BASELINES, IFCA, FedCluster, FeSEM, KMeans, run

__all__ = ["BASELINES", "IFCA", "FeSEM", "FedCluster", "KMeans", "run"]

# PyTorch is imported when a baseline is run, not when this package is.
__getattr__ = lazily(__name__, dict.fromkeys(__all__, "registry"))
