"""Clustered federated learning that FedCollab is compared to: IFCA, FedCluster, FeSEM and KMeans.

Each is a `Grouping`: it decides who is in which cluster, before or during training. Everything else (rounds, local
training, metrics, files) is `fedcollab.training`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from fedcollab.baselines.fedcluster import FedCluster
from fedcollab.baselines.fesem import FeSEM
from fedcollab.baselines.ifca import IFCA
from fedcollab.baselines.kmeans import KMeans
from fedcollab.data.client import ClientData
from fedcollab.errors import choose, number
from fedcollab.training import TrainingResult, train
from fedcollab.training.hooks import check_options
from fedcollab.training.rounds import Grouping
from fedcollab.wire.runtime import Runtime

__all__ = ["BASELINES", "IFCA", "FeSEM", "FedCluster", "KMeans", "run"]

BASELINES: dict[str, type[Grouping]] = {"fedcluster": FedCluster, "fesem": FeSEM, "ifca": IFCA, "kmeans": KMeans}


def run(
    name: str,
    clients: Iterable[ClientData] | Runtime,
    k: int = 4,
    *,
    rounds: int,
    lr: float,
    baseline_options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> TrainingResult:
    """Train with a clustered baseline; `settings` are those of `fedcollab.training.train`.

    k   the number of clusters (for FedCluster the most that it may make); the published experiments do not say theirs

    The result's `.assignment` is the clustering of the last round; `.distances` is N x N where the method has one.
    """
    baseline = choose("name", name, BASELINES)
    clients = clients if isinstance(clients, Runtime) else list(clients)
    count = len(clients.names) if isinstance(clients, Runtime) else len(clients)
    number("k", k, at_least=1, at_most=count, whole=True)
    known = {f.name: f.default for f in fields(baseline) if f.init and f.name not in ("coalitions", "k")}
    check_options(f"baseline '{name}'", baseline_options or {}, known)
    grouping = baseline(**{"k": int(k), **(baseline_options or {})})
    return train(clients, grouping, rounds=rounds, lr=lr, **settings)
