"""Carrying messages between a server and its clients: messages, actions, and the runtimes of one process.

Begin with `action`: all that a client can ever be asked to do is declared with `@action`, beside the code that does it.

`message`, `fields`, `bundle`   how a message is written, what a field of it may be, several messages in one
`silo`, `limits`                a client's side, and what its administrator insists on
`calls`, `runtime`              how clients are called, and what happens to those that do not answer (`absence`)
`vectorised`, `serialised`      the two runtimes of one process: without and with writing each message
"""

from __future__ import annotations

from collections.abc import Iterable

from fedcollab.data.client import ClientData
from fedcollab.errors import choose
from fedcollab.wire.runtime import Runtime
from fedcollab.wire.serialised import Wire
from fedcollab.wire.vectorised import Vectorised

__all__ = ["Runtime", "Vectorised", "Wire", "open_runtime", "pick_device"]

#: other packages add runtimes through this group of entry points; each takes (clients, device=...)
GROUP = "fedcollab.runtimes"
RUNTIMES: dict[str, type[Vectorised] | type[Wire]] = {"vectorised": Vectorised, "wire": Wire}


def open_runtime(clients: Iterable[ClientData], name: str = "vectorised", device: str = "auto") -> Runtime:
    """Return a runtime over these clients.

    Parameters
    ----------
    clients : iterable of ClientData
        The clients.
    name : str
        "vectorised", "wire", or a name that an installed package adds ("flower-simulation").
    device : str
        Where models run; "auto" is the GPU where there is one.

    Returns
    -------
    Runtime
        The runtime; its clients are not prepared yet.

    Raises
    ------
    InputError
        If there is no runtime of that name.
    """
    if name in RUNTIMES:
        return RUNTIMES[name](clients, device=pick_device(device))
    from importlib.metadata import entry_points  # costs more than all else at start-up

    added = {entry.name: entry for entry in entry_points(group=GROUP)}
    runtime: Runtime = choose("runtime", name, {**dict.fromkeys(RUNTIMES), **added}).load()(  # type: ignore[union-attr]
        clients, device=pick_device(device)
    )
    return runtime


def pick_device(device: str) -> str:
    """Return the device itself, or for "auto" the GPU where there is one and else the CPU."""
    if device != "auto":
        return device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
