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
    """The coalition learns a centre, each client a model near it (Moreau envelopes).

    Parameters
    ----------
    lam : float, default 1.0
        How strongly a personal model is drawn to the centre.
    K : int, default 5
        Steps of the personal model on each batch.
    personal_lr : float, default 0.1
        Step size of those steps.
    """

    lam: float = 1.0
    K: int = 5
    personal_lr: float = 0.1
    personalises = True
    plain_steps = False
    averaged = ("theta",)

    def client_init(self, message: State) -> State:
        """Return the client's first state: a personal model that is a copy of the coalition's."""
        return {"theta": message["w"].clone()}

    def begin(self, message: State, state: State) -> Tensor:
        """Start both models, the centre and the personal one, from what the coalition sent."""
        state["theta"].copy_(message["w"])
        return message["w"].clone()

    def step(self, w: Tensor, message: State, state: State, grad: Gradient, batch: Batch) -> None:
        """Take K steps of the personal model towards its proximal point, then one of the centre towards that point.

        Batch-norm statistics, which follow the parameters in a row of weights, have no gradient: the centre takes
        those of the personal model.
        """
        theta, pull, count = state["theta"], torch.zeros_like(w), grad.network.parameters
        theta[:, :count] = w[:, :count]
        for _ in range(self.K):
            grad.descend(theta, batch, pull, lr=self.personal_lr)
            torch.sub(theta, w, out=pull).mul_(self.lam)
        w[:, :count].add_(pull[:, :count], alpha=grad.lr)
        w[:, count:] = theta[:, count:]

    def personal(self, message: State, state: State, grad: Gradient, batches: Batches) -> Tensor:
        """Return the personal model as the last step left it (the last proximal point)."""
        return state["theta"]
