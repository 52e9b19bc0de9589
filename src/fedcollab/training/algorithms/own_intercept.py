"""Own intercept: FedAvg whose output bias stays with each client.

    f_i(x) = g(x; w) + b_i        w is the coalition's, b_i the client's own

Clients whose labels are of different frequency but follow the same rule differ by b_i alone: an own intercept takes
their label shift in, and they can train together. In general `train(..., keep=[...])` lets layers stay; with the last
layer kept it is FedPer.

Arivazhagan, Aggarwal, Singh, Choudhary: Federated learning with personalization layers. 2019.
"""

from __future__ import annotations

from fedcollab.training.hooks import Algorithm, register


@register("own-intercept")
class OwnIntercept(Algorithm):
    """FedAvg for all parameters but the output bias, which each client trains for itself and never sends."""

    keep = ("output-bias",)
