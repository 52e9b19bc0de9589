"""Local training: every client alone, whatever the coalitions say. The reference of IPR and RSD.

w_i <- w_i - lr g_i(w_i)
"""

from __future__ import annotations

from fedcollab.training.hooks import Algorithm, register


@register("local")
class Local(Algorithm):
    """Train every client alone: FedAvg in coalitions of one."""

    alone = True
