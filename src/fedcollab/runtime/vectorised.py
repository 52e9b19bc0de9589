"""The vectorised runtime: one process, nothing serialised, many clients at once where a procedure knows how.

The embedded default. A procedure may also reach `silos` and compute in ways that a real federation cannot (Gram
matrices between clients, all pairs in one batch), as long as a test proves the result equal to the wire runtime's.
"""

from __future__ import annotations

from collections.abc import Iterable

from fedcollab.clients.data import ClientData
from fedcollab.runtime.actions import find, find_together
from fedcollab.runtime.base import Runtime, check_clients
from fedcollab.runtime.message import Message
from fedcollab.runtime.silo import NO_FLOORS, Silo


class Vectorised(Runtime):
    """All clients in memory."""

    def __init__(self, clients: Iterable[ClientData], *, device: str = "cpu") -> None:
        checked = check_clients(clients)
        super().__init__(client.name for client in checked)
        self.clients, self.device = checked, device
        self.silos = {client.name: Silo(client, device=device, floors=NO_FLOORS) for client in checked}

    def _call(self, action: str, messages: dict[str, Message]) -> dict[str, Message]:
        together = find_together(action)
        if together is not None:
            return together(messages, {name: self.silos[name] for name in messages})
        return {name: find(action)(message, self.silos[name]) for name, message in messages.items()}
