"""Federation: a runtime, the schema that its clients agreed on, and what each client said of itself. Never changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fedcollab.data.schema import Schema
from fedcollab.errors import InputError
from fedcollab.federation.prepare import hand_out
from fedcollab.federation.present import Present
from fedcollab.wire.action import Action
from fedcollab.wire.message import Message
from fedcollab.wire.runtime import Runtime


@dataclass(frozen=True, eq=False)
class Federation:
    """Clients that are prepared: `federate` makes one, and every stage of a run works on it.

    runtime     carries the messages
    schema      how raw samples become model inputs, the same at every client
    described   what each client said of itself: quantity, label counts, columns, ...
    left_out    clients that did not answer while the federation was prepared, and why

    Two federations may share a runtime (one with an encoder, one without): before each call, clients that were last
    prepared with another schema are prepared again.
    """

    runtime: Runtime
    schema: Schema
    described: Mapping[str, Message]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The clients, in order of name."""
        return tuple(sorted(self.described))

    @property
    def quantities(self) -> dict[str, int]:
        """Training samples of each client, in order of name."""
        return {name: int(self.described[name]["quantity"]) for name in self.names}

    @property
    def absent(self) -> Mapping[str, str]:
        """The clients that did not answer the last call, and why."""
        return self.runtime.absent

    def call(
        self, action: Action | str, messages: Mapping[str, Any], *, partial: bool = False
    ) -> dict[str, dict[str, Any]]:
        """Have each of the named clients carry an action out; see `Runtime.call`."""
        unknown = sorted(set(messages) - set(self.described))
        if unknown:
            raise InputError(f"`messages` names {unknown[0]!r}, which is not a client of this federation")
        hand_out(Present(self.runtime, tuple(sorted(messages)), {}), self.schema)
        return self.runtime.call(action, messages, partial=partial)

    def call_all(self, action: Action | str, message: Any, *, partial: bool = False) -> dict[str, dict[str, Any]]:
        """Call every client with the same message; see `Runtime.call`."""
        return self.call(action, dict.fromkeys(self.names, message), partial=partial)

    def part(self, names: Iterable[str]) -> Federation:
        """Return a federation of some of the clients: whoever is not in it gets no message.

        Parameters
        ----------
        names : iterable of str
            The clients that stay.
        """
        return replace(self, described={name: self.described[name] for name in sorted(names)})

    def in_order_of(self, clients: Any) -> tuple[str, ...]:
        """Return the names in the order in which the user gave the clients; in order of name for a federation."""
        if isinstance(clients, (Runtime, Federation)):
            return self.names
        return tuple(client.name for client in clients if client.name in self.described)
