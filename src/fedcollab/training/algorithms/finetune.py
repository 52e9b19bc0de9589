"""Finetune: FedAvg, and before use each client takes a few local steps from the coalition's model.

    v_i = w;   v_i <- v_i - lr g_i(v_i)  for `steps` batches

Wang, Mathews, Kiddon, Eichner, Beaufays, Ramage: Federated evaluation of on-device personalization. 2019.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcollab.training.gradient import Gradient
from fedcollab.training.hooks import Algorithm, Batches, State, fine_tuned, register


@register("finetune")
@dataclass(frozen=True)
class Finetune(Algorithm):
    """FedAvg, and a personal model that each client fine-tunes from the coalition's before use.

    Parameters
    ----------
    steps : int, default 2
        Local steps of the fine-tuning; 0 is FedAvg.
    """

    steps: int = 2
    personalises = True

    def personal(self, message: State, state: State, grad: Gradient, batches: Batches) -> Tensor:
        """Return the coalition's model after a few plain steps on the client's own data."""
        return fine_tuned(message["w"], grad, batches(self.steps))
