"""FedAdam: the mean update of a round is a gradient for Adam on the server.

    d = sum_i p_i (w_i - w);   m <- b1 m + (1 - b1) d;   v <- b2 v + (1 - b2) d^2
    w <- w + server_lr m / (sqrt(v) + tau)

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: Adaptive federated optimization. ICLR 2021, Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcollab.training.hooks import Algorithm, State, average, register


@register("fedadam")
@dataclass(frozen=True)
class FedAdam(Algorithm):
    """FedAvg on the clients, Adam on the server.

    Parameters
    ----------
    server_lr : float, default 0.01
        Step size of the server.
    b1, b2 : float, default 0.9 and 0.99
        Decay of the first and of the second moment.
    tau : float, default 1e-3
        Added to the square root of the second moment, so that small moments do not give large steps.
    """

    server_lr: float = 0.01
    b1: float = 0.9
    b2: float = 0.99
    tau: float = 1e-3

    def server_init(self, w0: Tensor) -> State:
        """Return the server's first state: the first moment starts at 0, the second at tau squared."""
        return {"w": w0, "m": torch.zeros_like(w0), "v": torch.full_like(w0, self.tau**2)}

    def aggregate(self, server: State, replies: Sequence[State], weights: Sequence[float]) -> State:
        """Take one step of Adam along the mean update of the round."""
        update = average([reply["w"] for reply in replies], weights) - server["w"]
        m = self.b1 * server["m"] + (1 - self.b1) * update
        v = self.b2 * server["v"] + (1 - self.b2) * update**2
        return {"w": server["w"] + self.server_lr * m / (v.sqrt() + self.tau), "m": m, "v": v}
