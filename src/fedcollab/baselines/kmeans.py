"""KMeans: clients train alone first, and their weights are clustered once, before any federated round.

    min over centres c and assignment k of  sum_i ||w_i - c_{k_i}||^2

Then coalitions are fixed and each trains as usual. Long, Xie, Shen, Zhou, Wang, Jiang: Multi-center federated learning:
clients clustering for better personalization. World Wide Web 2023; the variant that the paper compares to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fedcollab import seeds
from fedcollab.baselines.geometry import distance_matrix
from fedcollab.errors import InputError, number
from fedcollab.training.hooks import State
from fedcollab.training.rounds import Grouping
from fedcollab.training.session import Session


@dataclass(eq=False)
class KMeans(Grouping):
    """KMeans: fixed clusters of locally trained weights.

    Parameters
    ----------
    k : int
        The number of clusters.
    local_rounds : int
        How many rounds clients train alone before their weights are clustered.
    restarts : int
        How often Lloyd's algorithm starts anew.
    """

    method: ClassVar[str] = "kmeans"
    k: int = 4
    local_rounds: int = 10
    restarts: int = 10

    def start(self, session: Session) -> None:
        """Train every client alone, cluster the weights, and start over in the clusters."""
        from sklearn.cluster import KMeans as Lloyd

        number("local_rounds", self.local_rounds, at_least=1, whole=True)
        own: dict[str, State] = {name: session.algorithm.server_init(session.initial) for name in session.names}
        for round_number in range(-self.local_rounds, 0):
            sent = {name: session.algorithm.broadcast(server) for name, server in own.items()}
            ((replies, _, spoilt),) = session.train(round_number, [sent])
            missing = next((name for name in session.names if name in spoilt or name not in replies), None)
            if missing is not None:
                raise InputError(f"baseline 'kmeans' needs every client's weights; client `{missing}` has none to give")
            own = {name: session.algorithm.aggregate(own[name], [replies[name]], [1.0]) for name in session.names}
        weights = [own[name]["w"] for name in session.names]
        self.distances = distance_matrix(weights)
        state = seeds.derive(session.setting.seed, "kmeans") % 2**32
        labels = Lloyd(self.k, n_init=self.restarts, random_state=state).fit_predict(torch.stack(weights).numpy())
        clusters = sorted(set(labels.tolist()))
        self.coalitions = [
            [name for name, label in zip(session.names, labels, strict=True) if label == cluster]
            for cluster in clusters
        ]
        session.forget()
        super().start(session)
