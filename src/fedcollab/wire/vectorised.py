"""The vectorised runtime: one process, nothing serialised, many clients at once where a procedure knows how.

The embedded default. A procedure may also reach `silos` and compute in ways that a real federation cannot (Gram
matrices between clients, all pairs in one batch), as long as a test proves the result equal to the wire runtime's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedcollab.data.client import ClientData
from fedcollab.wire.action import Action
from fedcollab.wire.limits import NO_LIMITS
from fedcollab.wire.message import Message
from fedcollab.wire.runtime import OF_TRAINING, Runtime, check_clients
from fedcollab.wire.silo import Silo


class Vectorised(Runtime):
    """The runtime that holds all clients in memory and serialises nothing.

    Parameters
    ----------
    clients : iterable of ClientData
        The clients.
    device : str
        Where models run.

    Attributes
    ----------
    silos : dict of str to Silo
        The clients' data and state, by name.
    """

    checks = False
    min_samples = NO_LIMITS.min_samples

    def __init__(self, clients: Iterable[ClientData], *, device: str = "cpu") -> None:
        checked = check_clients(clients)
        super().__init__(client.name for client in checked)
        self.clients, self.device = checked, device
        self.silos = {client.name: Silo(client, device=device, limits=NO_LIMITS) for client in checked}

    def states(self) -> dict[str, dict[str, Message]]:
        """Return what each client keeps of its training."""
        return {
            name: {key: kept for key, kept in silo.state.items() if key.startswith(OF_TRAINING)}
            for name, silo in self.silos.items()
        }

    def restore(self, states: Mapping[str, Mapping[str, Message]]) -> None:
        """Give clients back what `states` returned."""
        for name, kept in states.items():
            self.silos[name].state.update(kept)

    def _call(self, action: Action, messages: dict[str, Message]) -> dict[str, Message]:
        if action.stacked is not None:
            return action.stacked(messages, {name: self.silos[name] for name in messages})
        return {name: action(message, self.silos[name]) for name, message in messages.items()}
