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

from typing import Any

import lazy_loader

from fedcollab.errors import InputError

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("fedcollab"):
            raise
        raise InputError(f"a federation needs {error.name}: pip install 'fedcollab[flower]'") from None
