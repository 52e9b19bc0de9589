"""Where procedures run: the same code over in-process clients (wire, vectorised) or a real federation (Flower)."""

from __future__ import annotations

from collections.abc import Iterable

from fedcollab.data.client import ClientData
from fedcollab.errors import choose
from fedcollab.wire.runtime import Runtime
from fedcollab.wire.serialised import Wire
from fedcollab.wire.vectorised import Vectorised

__all__ = ["Runtime", "Vectorised", "Wire", "connect"]

RUNTIMES: dict[str, type[Vectorised] | type[Wire]] = {"vectorised": Vectorised, "wire": Wire}

SIMULATION = "flower-simulation"  # clients as processes, by Flower's Ray engine; imported when it is asked for


def connect(clients: Iterable[ClientData] | Runtime, runtime: str = "vectorised", device: str = "auto") -> Runtime:
    """A runtime over these clients; one that exists already is passed through."""
    if isinstance(clients, Runtime):
        return clients
    if runtime == SIMULATION:
        from fedcollab.flower.simulation import Simulation

        return Simulation(clients, device=pick_device(device))
    return choose("runtime", runtime, {**RUNTIMES, SIMULATION: Wire})(clients, device=pick_device(device))


def pick_device(device: str) -> str:
    """`auto` is the GPU where there is one."""
    if device != "auto":
        return device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
