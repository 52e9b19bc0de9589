"""FedProx: a proximal term keeps clients near the coalition's model w.

    w_i <- w_i - lr (g_i(w_i) + mu (w_i - w)),      the gradient of F_i(w_i) + mu/2 ||w_i - w||^2

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated optimization in heterogeneous networks. MLSys 2020, Eq. (2).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcollab.training.batches import Batch
from fedcollab.training.gradient import Gradient
from fedcollab.training.hooks import Algorithm, State, register


@register("fedprox")
@dataclass(frozen=True)
class FedProx(Algorithm):
    """FedAvg with a proximal term that keeps clients near the coalition's model.

    Parameters
    ----------
    mu : float, default 0.1
        Weight of the proximal term; 0 is FedAvg.
    """

    mu: float = 0.1

    def step(self, w: Tensor, message: State, state: State, grad: Gradient, batch: Batch) -> None:
        """Take one step along the gradient of the loss plus the proximal term."""
        grad.descend(w, batch, (w - message["w"]).mul_(self.mu))
