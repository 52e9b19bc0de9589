"""A real federation over Flower: the same procedures between real processes, with TLS and authenticated silos.

    connect_federation   a Runtime over a federation that `fedcollab federation start` runs, for use anywhere
    connect              the same, under its shorter name
    Flower               a Runtime over a Flower Grid, for use inside a ServerApp
    CoalitionGrid        a Grid that sees one coalition's nodes only, for an existing Flower app with its own strategy
    own_data             at a silo, the samples that its administrator named: for the ClientApp of such an app
    own_model            at a silo, the model that the last training left there

and for programs that set up a federation: `FederationFolder`, `SiloConfig`, `init_silo`, `start_silo`.

A message is one safetensors file, sent as one array whatever it holds; at the silo it is served as the wire runtime
serves it. Needs `pip install 'fedcollab[flower]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedcollab.errors import InputError
from fedcollab.lazy import lazily

if TYPE_CHECKING:
    from fedcollab.flower.coalition import CoalitionGrid
    from fedcollab.flower.coordinator.folder import FederationFolder
    from fedcollab.flower.coordinator.relay import connect, connect_federation
    from fedcollab.flower.grid import Flower
    from fedcollab.flower.silo.config import SiloConfig, init_silo, own_data
    from fedcollab.flower.silo.model import own_model
    from fedcollab.flower.silo.supernode import start_silo

__all__ = ["CoalitionGrid", "FederationFolder", "Flower", "SiloConfig", "connect", "connect_federation"]
__all__ += ["init_silo", "own_data", "own_model", "start_silo"]

_HOMES = {
    "CoalitionGrid": "coalition",
    "FederationFolder": "coordinator.folder",
    "Flower": "grid",
    "own_model": "silo.model",
    "start_silo": "silo.supernode",
    **dict.fromkeys(("connect", "connect_federation"), "coordinator.relay"),
    **dict.fromkeys(("SiloConfig", "init_silo", "own_data"), "silo.config"),
}


def __getattr__(name: str) -> Any:
    try:
        return lazily(__name__, _HOMES)(name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("fedcollab"):
            raise
        raise InputError(f"a federation needs {error.name}: pip install 'fedcollab[flower]'") from None
