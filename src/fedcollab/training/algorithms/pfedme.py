"""pFedMe: the coalition learns a centre, each client a model near it (Moreau envelopes).

For every batch, with theta_i started from w_i:

    theta_i <- theta_i - personal_lr (g_i(theta_i) + lam (theta_i - w_i))   K times
    w_i     <- w_i - lr lam (w_i - theta_i)

The personal model is the last theta_i. The server averages the w_i (beta = 1). Where theta_i starts is left open by
the reference; that it starts anew at every batch is what the code published with FedCollab does.

T. Dinh, Tran, Nguyen: Personalized federated learning with Moreau envelopes. NeurIPS 2020, Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcollab.training.batches import Batch
from fedcollab.training.gradient import Gradient
from fedcollab.training.hooks import Algorithm, Batches, State, register


@register("pfedme")
@dataclass(frozen=True)
class PFedMe(Algorithm):
    """Moreau envelopes with weight `lam`, `K` inner steps of `personal_lr` a batch."""

    lam: float = 1.0
    K: int = 5
    personal_lr: float = 0.1
    personalises = True

    def client_init(self, message: State) -> State:
        """The personal model starts from the coalition's."""
        return {"theta": message["w"].clone()}

    def begin(self, message: State, state: State) -> Tensor:
        """Both models start from what the coalition sent."""
        state["theta"].copy_(message["w"])
        return message["w"].clone()

    def step(self, w: Tensor, message: State, state: State, grad: Gradient, batch: Batch) -> None:
        """K steps of the personal model towards its proximal point, then one of the centre towards it.

        Batch-norm statistics, which follow the parameters, are counted on: the centre takes those of theta.
        """
        theta, pull, count = state["theta"], torch.zeros_like(w), grad.network.parameters
        theta[:, :count] = w[:, :count]
        for _ in range(self.K):
            grad.descend(theta, batch, pull, lr=self.personal_lr)
            torch.sub(theta, w, out=pull).mul_(self.lam)
        w[:, :count].add_(pull[:, :count], alpha=grad.lr)
        w[:, count:] = theta[:, count:]

    def personal(self, message: State, state: State, grad: Gradient, batches: Batches) -> Tensor:
        """The last proximal point."""
        return state["theta"]
