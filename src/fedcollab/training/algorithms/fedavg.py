"""FedAvg: clients take SGD steps from the coalition's model, the server averages by quantity.

    w_i <- w_i - lr g_i(w_i)  for every batch,      w <- sum_i p_i w_i,   p_i = m_i / sum_j m_j

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-efficient learning of deep networks from decentralized
data. AISTATS 2017, Algorithm 1.
"""

from __future__ import annotations

from fedcollab.training.hooks import Algorithm, register


@register("fedavg")
class FedAvg(Algorithm):
    """Federated averaging: every hook keeps its default."""
