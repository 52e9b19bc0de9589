"""What a runtime is: it carries messages to clients, has them act, and brings the replies back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fedcollab.clients.data import ClientData
from fedcollab.errors import InputError
from fedcollab.runtime.message import Message, payload

if TYPE_CHECKING:
    from fedcollab.clients.schema import Schema


@dataclass
class Cost:
    """What a federation has moved so far: rounds, and bytes of arrays to and from each client."""

    rounds: int = 0
    down: dict[str, int] = field(default_factory=dict)
    up: dict[str, int] = field(default_factory=dict)

    def count(self, messages: Mapping[str, Message], replies: Mapping[str, Message]) -> None:
        """Add one round."""
        self.rounds += 1
        for name, message in messages.items():
            self.down[name] = self.down.get(name, 0) + payload(message)
        for name, reply in replies.items():
            self.up[name] = self.up.get(name, 0) + payload(reply)


class Runtime(ABC):
    """Server code sees clients through this alone.

    `call` sends one message to each named client, has it run an action from `runtime.actions`, and returns the
    replies by name, in order of name, whatever order the messages came in. A client that does not answer ends it with
    one clear line, unless `partial` asks for the replies of those who did; `absent` then says who did not, and why.

    `schema` and `described` are set by `clients.schema.prepare`: what the federation agreed on, and what each client
    said of itself (quantity, label counts).
    """

    #: whether a round costs seconds, so that procedures choose what takes few rounds
    few_rounds: bool = False
    #: whether clients keep their trained models themselves; personal ones then do not leave them
    models_stay: bool = False
    schema: Schema | None = None
    described: Mapping[str, Message]
    absent: Mapping[str, str]

    def __init__(self, names: Iterable[str]) -> None:
        self.names: tuple[str, ...] = tuple(sorted(names))
        self.cost = Cost()
        self.described, self.absent = {}, {}
        if len(set(self.names)) != len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise InputError(f"`clients` has the name {twice!r} twice; names must differ")

    def call(self, action: str, messages: Mapping[str, Message], *, partial: bool = False) -> dict[str, Message]:
        """One round: an action at each of the named clients."""
        unknown = sorted(set(messages) - set(self.names))
        if unknown:
            raise InputError(f"`messages` names {unknown[0]!r}, which is not a client of this federation")
        ordered = {name: messages[name] for name in sorted(messages)}
        self.absent = {}
        replies = self._call(action, ordered)
        self.cost.count(ordered, replies)
        silent = [name for name in ordered if name not in replies]
        self.absent = {name: self.absent.get(name, "no answer") for name in silent}
        if silent and not partial:
            raise InputError(f"client `{silent[0]}` could not answer `{action}`: {self.absent[silent[0]]}")
        return replies

    def call_all(self, action: str, message: Message) -> dict[str, Message]:
        """One round with the same message for everyone."""
        return self.call(action, dict.fromkeys(self.names, message))

    @abstractmethod
    def _call(self, action: str, messages: dict[str, Message]) -> dict[str, Message]:
        """Carry the messages, in order of name; who does not answer is left out, with the reason in `absent`."""


def check_clients(clients: Iterable[ClientData]) -> list[ClientData]:
    """The clients in order of name, at least two of them and all with one name each."""
    checked = list(clients)
    for client in checked:
        if not isinstance(client, ClientData):
            raise InputError(f"`clients` holds a {type(client).__name__}; expected ClientData")
    if len(checked) < 2:
        raise InputError(f"`clients` has {len(checked)} client(s); at least 2 are needed to ask who trains with whom")
    return sorted(checked, key=lambda client: client.name)
