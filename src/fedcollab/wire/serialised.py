"""The wire runtime: one process, but every message and every client state really is serialised and handed over.

It is the reference that the other runtimes must equal: the vectorised one in every procedure, Flower in a few rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from fedcollab.data.client import ClientData
from fedcollab.wire.action import Action
from fedcollab.wire.limits import NO_LIMITS
from fedcollab.wire.message import Message, pack, receive, unpack
from fedcollab.wire.runtime import OF_TRAINING, Runtime, check_clients
from fedcollab.wire.silo import Silo

Spy = Callable[[str, str, bytes, bytes], None]


class Wire(Runtime):
    """The runtime that serialises every message, and rebuilds each client from its data and stored state for each one.

    Parameters
    ----------
    clients : iterable of ClientData
        The clients; they act one after the other.
    device : str
        Where models run.
    keys : mapping of str to bytes, optional
        Secret keys of clients, with which their folds, splits and batches are drawn (`Silo.lot`): a test that compares
        with silos of a real federation hands theirs over.
    spy : callable, optional
        Called with every (action, client name, message bytes, reply bytes) that crosses the line.

    Attributes
    ----------
    bytes_on_wire : int
        The length of all serialised messages and replies so far.
    """

    min_samples = NO_LIMITS.min_samples

    def __init__(
        self,
        clients: Iterable[ClientData],
        *,
        device: str = "cpu",
        keys: Mapping[str, bytes] | None = None,
        spy: Spy | None = None,
    ) -> None:
        checked = check_clients(clients)
        super().__init__(client.name for client in checked)
        self.clients, self.device = checked, device
        self._data = {client.name: client for client in checked}
        self._state: dict[str, dict[str, bytes]] = {name: {} for name in self.names}
        self._keys = dict(keys or {})
        self._spy = spy
        self.bytes_on_wire = 0

    def states(self) -> dict[str, dict[str, Message]]:
        """Return what each client keeps of its training."""
        return {
            name: {key: unpack(kept) for key, kept in state.items() if key.startswith(OF_TRAINING)}
            for name, state in self._state.items()
        }

    def restore(self, states: Mapping[str, Mapping[str, Message]]) -> None:
        """Give clients back what `states` returned."""
        for name, kept in states.items():
            self._state[name].update({key: pack(value) for key, value in kept.items()})

    def _call(self, action: Action, messages: dict[str, Message]) -> dict[str, Message]:
        """Carry an action out at clients, each message as bytes."""
        replies = {}
        for name, message in messages.items():
            sent = pack(message)
            returned = self._serve(action, name, sent)
            self.bytes_on_wire += len(sent) + len(returned)
            if self._spy is not None:
                self._spy(action.name, name, sent, returned)
            replies[name] = receive(returned)
        return replies

    def _serve(self, action: Action, name: str, content: bytes) -> bytes:
        """Do the client's side of one call: bytes in, bytes out, state read from and written back to bytes."""
        kept: dict[str, Message] = {key: unpack(value) for key, value in self._state[name].items()}
        silo = Silo(self._data[name], kept, self.device, NO_LIMITS, self._keys.get(name, b""))
        reply = pack(action(unpack(content), silo))
        self._state[name] = {key: pack(value) for key, value in silo.state.items()}
        return reply
