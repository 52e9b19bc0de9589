"""Finetune: FedAvg, and before use each client takes a few local steps from the coalition's model.

    v_i = w;   v_i <- v_i - lr g_i(v_i)  for `steps` batches

Wang, Mathews, Kiddon, Eichner, Beaufays, Ramage: Federated evaluation of on-device personalization. 2019.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcollab.training.gradient import Gradient
from fedcollab.training.hooks import Algorithm, Batches, State, register


@register("finetune")
@dataclass(frozen=True)
class Finetune(Algorithm):
    """FedAvg with `steps` local steps for the personal model."""

    steps: int = 2
    personalises = True

    def personal(self, message: State, state: State, grad: Gradient, batches: Batches) -> Tensor:
        """A few plain steps from the coalition's model."""
        v = message["w"].clone()
        for batch in batches(self.steps):
            grad.descend(v, batch)
        return v
