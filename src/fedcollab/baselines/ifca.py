"""IFCA: K models, and in every round each client joins the one with the lowest loss on its training data.

    k_i = argmin_k F_i(w_k);      w_k <- average over {i : k_i = k}, by quantity, of what clients made of w_k

The K models start from different random weights. Ghosh, Chung, Yin, Ramchandran: An efficient framework for clustered
federated learning. NeurIPS 2020, Algorithm 1, option II (model averaging).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedcollab.training.rounds import Grouping
from fedcollab.training.session import Session


@dataclass(eq=False)
class IFCA(Grouping):
    """IFCA: every client joins the model with the lowest training loss.

    Parameters
    ----------
    k : int
        The number of models.
    """

    method: ClassVar[str] = "ifca"
    k: int = 4

    def start(self, session: Session) -> None:
        """Start K models from K seeds; the first is the one that every other method starts from."""
        session.servers = [session.algorithm.server_init(w) for w in session.initials(self.k, self.method)]
        session.assignment = dict.fromkeys(session.names, 0)

    def before(self, number: int, session: Session) -> None:
        """Assign every client to the model with the lowest training loss."""
        for name, losses in session.losses(number).items():
            session.assignment[name] = int(np.argmin(np.nan_to_num(losses, nan=np.inf)))
