"""The clustered baselines by name, and `run` to train with one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fedcollab.baselines.fedcluster import FedCluster
from fedcollab.baselines.fesem import FeSEM
from fedcollab.baselines.ifca import IFCA
from fedcollab.baselines.kmeans import KMeans
from fedcollab.data.client import list_clients
from fedcollab.errors import choose, number
from fedcollab.federation import Clients
from fedcollab.training import TrainingResult, defaults, train
from fedcollab.training.hooks import check_options
from fedcollab.training.rounds import Grouping

__all__ = ["BASELINES", "IFCA", "FeSEM", "FedCluster", "KMeans", "run"]

BASELINES: dict[str, type[Grouping]] = {"fedcluster": FedCluster, "fesem": FeSEM, "ifca": IFCA, "kmeans": KMeans}


def run(
    name: str,
    clients: Clients,
    k: int = 4,
    *,
    rounds: int = defaults.ROUNDS,
    lr: float = defaults.LR,
    baseline_options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> TrainingResult:
    """Train with a clustered baseline.

    Parameters
    ----------
    name : str
        One of `BASELINES`.
    clients : iterable of ClientData, Runtime or Federation
        The clients, as for `fedcollab.train`.
    k : int
        The number of clusters, for FedCluster the most that it may make. The published experiments do not say theirs.
    rounds, lr : int, float
        Rounds and step size, as for `fedcollab.train`.
    baseline_options : mapping, optional
        Settings of the baseline itself, such as `local_rounds` of KMeans.
    **settings
        All other settings of `fedcollab.train`.

    Returns
    -------
    TrainingResult
        `.assignment` is the clustering of the last round; `.distances` is N x N where the method has one.

    Raises
    ------
    InputError
        If the name, `k` or an option is not known or out of range.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(40.0)[:, None] % 20
    >>> halves = {"north": (x[:20], x[:20, 0] > 9), "south": (x[20:], x[20:, 0] <= 9)}
    >>> result = run("ifca", halves, k=2, rounds=1, model="logistic")
    >>> result.method, result.assignment.shape
    ('ifca', (2,))
    """
    baseline = choose("name", name, BASELINES)
    listed: Any = list_clients(clients)
    count = len(listed) if isinstance(listed, list) else len(listed.names)
    number("k", k, at_least=1, at_most=count, whole=True)
    known = {f.name: f.default for f in fields(baseline) if f.init and f.name not in ("coalitions", "k")}
    check_options(f"baseline '{name}'", baseline_options or {}, known)
    grouping = baseline(**{"k": int(k), **(baseline_options or {})})
    return train(listed, grouping, rounds=rounds, lr=lr, **{"stopping": "none", **settings})
