"""Federation: a runtime, the schema its clients agreed on, and each client's description of its data. Never changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedcollab.data.schema import Schema
from fedcollab.errors import InputError, Paused
from fedcollab.federation.prepare import hand_out
from fedcollab.wire.absence import reasons
from fedcollab.wire.action import Action
from fedcollab.wire.calls import Answered, Calls
from fedcollab.wire.message import Message
from fedcollab.wire.runtime import Runtime


@dataclass(frozen=True, eq=False)
class Federation(Calls):
    """Clients that are prepared: `federate` makes one, and every stage of a run works on it.

    Two federations may share a runtime (one with an encoder, one without): before each call, clients that were last
    prepared with another schema are prepared again.

    Parameters
    ----------
    runtime : Runtime
        Carries the messages.
    schema : Schema
        How raw samples become model inputs, the same at every client.
    described : mapping
        The description that each client gave of its data: quantity, label counts, columns and more.
    left_out : mapping of str to str
        Clients that did not answer while the federation was prepared, and why.
    """

    runtime: Runtime
    schema: Schema
    described: Mapping[str, Message]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the clients' names in order."""
        return tuple(sorted(self.described))

    @property
    def quantities(self) -> dict[str, int]:
        """Return the number of training samples of each client, in order of name."""
        return {name: int(self.described[name]["quantity"]) for name in self.names}

    @property
    def min_coalition(self) -> int:
        """Return how many clients a coalition must have at least, by the limits of the silos.

        Raises
        ------
        InputError
            If a silo asks for more than there are.
        """
        asked = {name: int(reply.get("min_coalition", 1)) for name, reply in self.described.items()}
        for name, least in asked.items():
            if least > len(asked):
                raise InputError(
                    f"client `{name}` trains in coalitions of at least {least} clients (its limit `min_coalition`); "
                    f"there are {len(asked)}"
                )
        return max(asked.values(), default=1)

    @property
    def absent(self) -> Mapping[str, str]:
        """Return the clients that did not answer the last call, and why."""
        return self.runtime.absent

    def call_several(
        self, calls: Sequence[tuple[Action | str, Mapping[str, Any]]], *, partial: bool = False
    ) -> list[Answered]:
        """Have clients carry several actions out in one round, those prepared for another schema prepared again."""
        names = sorted({name for _, messages in calls for name in messages})
        unknown = set(names) - set(self.described)
        if unknown:
            raise InputError(f"`messages` names {min(unknown)!r}, which is not a client of this federation")
        lost = self.hand_out(names)
        if lost and not partial:
            raise Paused(f"{len(lost)} client(s) could not be prepared: {reasons(lost)}")
        reached = [(action, {n: m for n, m in messages.items() if n not in lost}) for action, messages in calls]
        answered = self.runtime.call_several(reached, partial=partial)
        self.runtime.absent = {**self.runtime.absent, **lost}
        return [
            replace(each, absent={**each.absent, **{name: lost[name] for name in messages if name in lost}})
            for each, (_, messages) in zip(answered, calls, strict=True)
        ]

    def hand_out(self, names: Iterable[str]) -> Mapping[str, str]:
        """Have clients apply this federation's schema, those of them that were last prepared with another.

        Parameters
        ----------
        names : iterable of str
            The clients.

        Returns
        -------
        mapping
            Who did not answer, and why.
        """
        return hand_out(self.runtime, names, self.schema, self.described)

    def part(self, names: Iterable[str]) -> Federation:
        """Return a federation of some of the clients; the others get no message from it.

        Parameters
        ----------
        names : iterable of str
            The clients that stay.

        Returns
        -------
        Federation
            The smaller federation, with the same runtime and schema.
        """
        return replace(self, described={name: self.described[name] for name in sorted(names)})

    def in_order_of(self, clients: Any) -> tuple[str, ...]:
        """Return the names in the order in which the user gave the clients; in order of name for a federation."""
        if isinstance(clients, (Runtime, Federation)):
            return self.names
        return tuple(client.name for client in clients if client.name in self.described)
