"""A real federation over Flower: the same procedures between real processes, with TLS and authenticated silos.

    Flower          a Runtime over a Flower Grid, for use inside a ServerApp
    connect         a Runtime over a federation that `fedcollab federation start` runs, for use anywhere
    CoalitionGrid   a Grid that sees one coalition's nodes only, for an existing Flower app with its own strategy
    own_data        at a silo, the samples that its administrator named: for the ClientApp of such an app
    own_model       at a silo, the model that the last training left there

A message is one safetensors file, sent as one array whatever it holds; the silo's side is `runtime.serve`, the same
function that the wire runtime calls. Needs `pip install 'fedcollab[flower]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcollab.lazy import lazily

if TYPE_CHECKING:
    from fedcollab.flower.coalition import CoalitionGrid
    from fedcollab.flower.config import own_data, own_model
    from fedcollab.flower.grid import Flower
    from fedcollab.flower.relay import connect

__all__ = ["CoalitionGrid", "Flower", "connect", "own_data", "own_model"]

__getattr__ = lazily(
    __name__,
    {
        "CoalitionGrid": "coalition",
        "Flower": "grid",
        "connect": "relay",
        "own_data": "config",
        "own_model": "config",
    },
)
