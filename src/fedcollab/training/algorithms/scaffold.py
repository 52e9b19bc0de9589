"""SCAFFOLD: control variates correct the drift of clients towards their own optimum.

    y_i <- y_i - lr (g_i(y_i) + c - c_i)
    c_i+ = c_i - c + (w - y_i) / (steps lr);      w <- sum_i p_i y_i,   c <- c + sum_i p_i (c_i+ - c_i)

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: stochastic controlled averaging for federated learning.
ICML 2020, Algorithm 1, option II, global step 1, weighted by quantity as FedAvg is here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fedcollab.training.batches import Batch
from fedcollab.training.gradient import Gradient
from fedcollab.training.hooks import Algorithm, State, average, register


@register("scaffold")
class Scaffold(Algorithm):
    """FedAvg whose clients correct each step by the difference of two control variates, the server's and their own."""

    plain_steps = False
    replies: ClassVar[Mapping[str, str]] = {"change": "weights"}

    def server_init(self, w0: Tensor) -> State:
        """Return the server's first state: its control variate starts at 0, so that the first round is FedAvg's."""
        return {"w": w0, "c": torch.zeros_like(w0)}

    def broadcast(self, server: State) -> State:
        """Return the coalition's model and the server's control variate."""
        return {"w": server["w"], "c": server["c"]}

    def client_init(self, message: State) -> State:
        """Return the client's first state: its own control variate, which starts at 0."""
        return {"c": torch.zeros_like(message["w"])}

    def step(self, w: Tensor, message: State, state: State, grad: Gradient, batch: Batch) -> None:
        """Take one step along the gradient corrected by the two control variates."""
        grad.descend(w, batch, message["c"] - state["c"])

    def reply(self, w: Tensor, message: State, state: State, steps: Tensor, lr: float) -> State:
        """Return the trained weights and the change of the client's control variate, which is renewed in `state`."""
        change = (message["w"] - w) / (steps * lr) - message["c"]
        state["c"].add_(change)
        return {"w": w, "change": change}

    def aggregate(self, server: State, replies: Sequence[State], weights: Sequence[float]) -> State:
        """Average the weights, and add the average change of the clients' control variates to the server's."""
        w = average([reply["w"] for reply in replies], weights)
        return {"w": w, "c": server["c"] + average([reply["change"] for reply in replies], weights)}
