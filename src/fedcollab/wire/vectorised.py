"""The vectorised runtime: one process, nothing serialised, many clients at once where a procedure knows how.

The embedded default. A procedure may also reach `silos` and compute in ways that a real federation cannot (Gram
matrices between clients, all pairs in one batch), as long as a test proves the result equal to the wire runtime's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedcollab.data.client import ClientData
from fedcollab.wire.action import find, find_together
from fedcollab.wire.message import Message
from fedcollab.wire.runtime import Runtime, check_clients
from fedcollab.wire.silo import NO_FLOORS, Silo


class Vectorised(Runtime):
    """All clients in memory."""

    checks = False
    min_samples = NO_FLOORS.min_samples

    def __init__(self, clients: Iterable[ClientData], *, device: str = "cpu") -> None:
        checked = check_clients(clients)
        super().__init__(client.name for client in checked)
        self.clients, self.device = checked, device
        self.silos = {client.name: Silo(client, device=device, floors=NO_FLOORS) for client in checked}

    def states(self) -> dict[str, dict[str, Message]]:
        """What each client keeps of its training."""
        return {
            name: {key: kept for key, kept in silo.state.items() if key.startswith("train")}
            for name, silo in self.silos.items()
        }

    def restore(self, states: Mapping[str, Mapping[str, Message]]) -> None:
        """Have clients keep what `states` gave."""
        for name, kept in states.items():
            self.silos[name].state.update(kept)

    def _call(self, action: str, messages: dict[str, Message]) -> dict[str, Message]:
        together = find_together(action)
        if together is not None:
            return together(messages, {name: self.silos[name] for name in messages})
        return {name: find(action)(message, self.silos[name]) for name, message in messages.items()}
