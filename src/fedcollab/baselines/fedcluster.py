"""FedCluster (Sattler's clustered federated learning): split a cluster in two when its clients pull apart.

    S_ij = <d_i, d_j> / (||d_i|| ||d_j||),      d_i = w_i - w, the update of client i

A cluster is split when its mean update has become short while some client's is still long:

    ||sum_i p_i d_i|| < eps1 max_i ||d_i||   and   max_i ||d_i|| > eps2

into the two parts with the smallest largest similarity across them (complete linkage on 1 - S). The published eps1 is
an absolute length that fits one model; here it is relative to the longest update, so that it does not depend on the
model or the learning rate. No split in the first `warm_up` rounds or beyond `k` clusters.

Sattler, Müller, Samek: Clustered federated learning: model-agnostic distributed multitask optimization under privacy
constraints. IEEE TNNLS 2021, Algorithms 1 and 2, Eq. (27), (28), (31).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedcollab.baselines.geometry import cosine_matrix
from fedcollab.training.hooks import State, average
from fedcollab.training.rounds import Grouping
from fedcollab.training.session import Replies, Session


@dataclass(eq=False)
class FedCluster(Grouping):
    """FedCluster: recursive bipartition by the cosine similarity of updates.

    Parameters
    ----------
    k : int
        The most clusters that it may make.
    eps1 : float
        How short the mean update must be, relative to the longest, for a cluster to be split.
    eps2 : float
        How long the longest update must be for a cluster to be split.
    warm_up : int
        Rounds before the first split.
    """

    method: ClassVar[str] = "fedcluster"
    k: int = 4
    eps1: float = 0.7
    eps2: float = 0.0
    warm_up: int = 10

    def start(self, session: Session) -> None:
        """Start with one cluster of everyone."""
        session.servers = [session.algorithm.server_init(session.initial)]
        session.assignment = dict.fromkeys(session.names, 0)

    def after(self, number: int, session: Session, old: Sequence[State], replies: Replies) -> None:
        """Split the clusters whose clients pull apart; a client that did not answer stays where it was.

        Parameters
        ----------
        number : int
            The round that ended.
        session : Session
            The training, which is changed.
        old : sequence of State
            What the clusters' models were before the round.
        replies : Replies
            What the clients trained.
        """
        updates = {name: reply["w"] - old[session.assignment[name]]["w"] for name, reply in replies.items()}
        if len(session.servers) == 1 and len(updates) == len(session.names):
            self.distances = 1.0 - cosine_matrix([updates[name] for name in session.names])
        if number <= self.warm_up:
            return
        for cluster in session.active:
            names = [name for name in session.members(cluster) if name in updates]
            if len(session.servers) >= self.k or len(names) < 2:
                continue
            lengths = [float(updates[name].norm()) for name in names]
            mean = float(average([updates[name] for name in names], session.shares(names, cluster)).norm())
            if mean < self.eps1 * max(lengths) and max(lengths) > self.eps2:
                apart = bipartition(1.0 - cosine_matrix([updates[name] for name in names]))
                for name, moves in zip(names, apart, strict=True):
                    if moves:
                        session.assignment[name] = len(session.servers)
                session.servers.append(dict(session.servers[cluster]))


def bipartition(distances: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return who leaves: of the two parts that complete linkage joins last, the one without the first client."""
    from sklearn.cluster import AgglomerativeClustering

    labels = AgglomerativeClustering(2, metric="precomputed", linkage="complete").fit_predict(distances)
    apart: NDArray[np.bool_] = labels != labels[0]
    return apart
