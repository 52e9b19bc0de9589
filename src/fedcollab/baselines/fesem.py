"""FeSEM: K centres in the space of weights; each client belongs to the one nearest to its trained weights.

    k_i = argmin_k ||w_i - c_k||^2;      c_k <- average over {i : k_i = k}, by quantity, of w_i

Clients train from their centre; a centre that nobody is nearest to stays where it is. How the centres start:

    "clients"   all train from the same weights in the first round; then the centres are K clients' weights, a random
                one first and each next the farthest from those before
    "random"    K random models, and each client begins at one by draw. A round moves weights less than random models
                are apart, so that clients stay where they began

Xie, Long, Shen, Zhou, Wang, Jiang, Zhang: Multi-center federated learning. 2020, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedcollab import seeds
from fedcollab.baselines.geometry import distance_matrix
from fedcollab.errors import choose
from fedcollab.training.hooks import State
from fedcollab.training.rounds import Grouping
from fedcollab.training.session import Replies, Session


@dataclass(eq=False)
class FeSEM(Grouping):
    """FeSEM: clusters by the distance of trained weights to K centres.

    Parameters
    ----------
    k : int
        The number of centres.
    centres : {"clients", "random"}
        How the centres start.
    """

    method: ClassVar[str] = "fesem"
    k: int = 4
    centres: str = "clients"

    def start(self, session: Session) -> None:
        """Start every client from the same weights, or from a random one of K random models."""
        alike = choose("centres", self.centres, {"clients": True, "random": False})
        starts = [session.initial] * self.k if alike else session.initials(self.k, self.method)
        session.servers = [session.algorithm.server_init(w) for w in starts]
        draw = seeds.generator(session.setting.seed, self.method, "deal")
        begin = [0] * len(session.names) if alike else draw.integers(self.k, size=len(session.names)).tolist()
        session.assignment = dict(zip(session.names, begin, strict=True))

    def after(self, number: int, session: Session, old: Sequence[State], replies: Replies) -> None:
        """Assign every client to its nearest centre, then move the centres.

        Parameters
        ----------
        number : int
            The round that ended.
        session : Session
            The training, which is changed.
        old : sequence of State
            What the centres were before the round.
        replies : Replies
            What the clients trained.
        """
        if not replies:
            return
        trained = torch.stack([replies[name]["w"] for name in sorted(replies)])
        if number == 1 and self.centres == "clients":
            centres = spread(trained, self.k, seeds.derive(session.setting.seed, "fesem"))
        else:
            centres = torch.stack([server["w"] for server in old])
        nearest = torch.cdist(trained, centres).argmin(1).tolist()
        session.assignment |= dict(zip(sorted(replies), nearest, strict=True))
        session.servers = list(old)
        for cluster in sorted(set(nearest) - set(session.stopped)):
            names = [name for name in replies if session.assignment[name] == cluster]
            session.servers[cluster] = session.aggregate(
                old[cluster], {name: replies[name] for name in names}, number, cluster
            )
        if len(replies) == len(session.names):
            self.distances = distance_matrix(list(trained))


def spread(points: Tensor, count: int, draw: int) -> Tensor:
    """Choose `count` of the `points`: the one that `draw` names, then always the farthest from those chosen."""
    chosen = [draw % len(points)]
    while len(chosen) < count:
        chosen.append(int(torch.cdist(points, points[chosen]).min(1).values.argmax()))
    return points[chosen]
