"""FedNova: updates are divided by their number of steps, so that clients with many steps do not set the objective.

    w <- w - tau sum_i p_i (w - w_i) / tau_i,      tau = sum_i p_i tau_i

Wang, Liu, Liang, Joshi, Poor: Tackling the objective inconsistency problem in heterogeneous federated optimization.
NeurIPS 2020, Eq. (10), for local SGD without momentum, where ||a_i||_1 is the number of steps tau_i.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from torch import Tensor

from fedcollab.training.hooks import Algorithm, State, average, register


@register("fednova")
class FedNova(Algorithm):
    """FedAvg whose server divides each client's update by its number of local steps before averaging."""

    plain_steps = False
    replies: ClassVar[Mapping[str, str]] = {"steps": "count"}
    additive = False

    def reply(self, w: Tensor, message: State, state: State, steps: Tensor, lr: float) -> State:
        """Return the trained weights and how many steps led to them."""
        return {"w": w, "steps": steps}

    def aggregate(self, server: State, replies: Sequence[State], weights: Sequence[float]) -> State:
        """Move the coalition's model by the mean update per step, times the mean number of steps."""
        steps = [float(reply["steps"]) for reply in replies]
        effective = sum(p * tau for p, tau in zip(weights, steps, strict=True))
        scale = [p / tau for p, tau in zip(weights, steps, strict=True)]
        drift = average([server["w"] - reply["w"] for reply in replies], scale)
        return {**server, "w": server["w"] - effective * drift}
