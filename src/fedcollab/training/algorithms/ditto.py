"""Ditto: FedAvg for the coalition, and beside it a personal model drawn to the coalition's.

    w_i <- w_i - lr g_i(w_i)                          the coalition's path is FedAvg's
    v_i <- v_i - lr (g_i(v_i) + lam (v_i - w))        w as received at the beginning of the round

Li, Hu, Beirami, Smith: Ditto: fair and robust federated learning through personalization. ICML 2021, Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcollab.training.batches import Batch
from fedcollab.training.gradient import Gradient
from fedcollab.training.hooks import Algorithm, Batches, State, register


@register("ditto")
@dataclass(frozen=True)
class Ditto(Algorithm):
    """FedAvg for the coalition, and beside it a personal model that a proximal term draws towards the coalition's.

    Parameters
    ----------
    lam : float, default 1.0
        Weight of the proximal term; 0 trains the personal model alone.
    """

    lam: float = 1.0
    personalises = True
    averaged = ("v",)

    def client_init(self, message: State) -> State:
        """Return the client's first state: a personal model that is a copy of the coalition's."""
        return {"v": message["w"].clone()}

    def step(self, w: Tensor, message: State, state: State, grad: Gradient, batch: Batch) -> None:
        """Take one step with the coalition's model and one with the personal model, on the same batch."""
        grad.descend(w, batch)
        grad.descend(state["v"], batch, (state["v"] - message["w"]).mul_(self.lam))

    def personal(self, message: State, state: State, grad: Gradient, batches: Batches) -> Tensor:
        """Return the personal model that the client keeps between rounds."""
        return state["v"]
