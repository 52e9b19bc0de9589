"""Runtimes whose silos are elsewhere: what the runtime inside a ServerApp and the one outside of it have in common.

Nothing here imports Flower, which takes seconds.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedcollab.errors import FedcollabWarning, InputError
from fedcollab.wire.absence import Policy
from fedcollab.wire.action import Action
from fedcollab.wire.bundle import BUNDLE, join_parts, split_parts
from fedcollab.wire.message import Message, pack, receive
from fedcollab.wire.runtime import Runtime

DEADLINE = 600.0  # seconds for one call, from sending the first message to the last reply
PATIENCE = 120.0  # seconds for the silos to connect


class Found(NamedTuple):
    """The silos that are connected.

    Attributes
    ----------
    names : list of str
        Their names.
    refused : list of str
        Why connected silos without a name were left out, one line each, for the user.
    """

    names: list[str]
    refused: list[str]


class Asked(NamedTuple):
    """What silos are asked at the moment.

    Attributes
    ----------
    action : str
        The name of the action; of several, those of all.
    round : int or None
        The number of the round, for actions that count rounds.
    names : list of str
        The silos.
    """

    action: str
    round: int | None
    names: list[str]


@dataclass(frozen=True)
class Returned:
    """What came back from one call, by name of the silo.

    Attributes
    ----------
    contents : dict
        The packed reply of each silo that answered.
    silent : dict
        Why a silo did not answer.
    failed : dict
        Why a silo that answered could not do what it was asked.
    """

    contents: dict[str, bytes]
    silent: dict[str, str]
    failed: dict[str, str]

    def messages(self) -> dict[str, Message]:
        """Return the replies; that of a silo that failed has only the key `error` (see `wire.absence`)."""
        failed: dict[str, Message] = {name: {"error": why} for name, why in self.failed.items()}
        return {name: receive(content) for name, content in self.contents.items()} | failed


class RemoteRuntime(Runtime):
    """A runtime over silos that run elsewhere, with messages that are really serialised.

    Parameters
    ----------
    names : iterable of str or None
        The silos to work with; None for those that were found.
    found : Found
        The silos that are connected.
    patience : float
        Seconds that were waited for the silos to connect.
    policy : Policy
        How often to ask again, and how many answers are enough.
    journal : Path, optional
        The folder where absences are listed from the beginning, silos that did not connect included.

    Raises
    ------
    InputError
        If fewer than two silos are connected.
    Paused
        If fewer of the named silos are connected than the policy's quorum.
    """

    few_rounds = models_stay = lasting = True
    messages = bytes_on_wire = 0
    #: what silos are asked at the moment, or were asked last
    asked: Asked | None = None

    def __init__(
        self, names: Iterable[str] | None, found: Found, patience: float, policy: Policy, journal: Path | None = None
    ) -> None:
        super().__init__(names or found.names, policy)
        if journal is not None:
            self.keep_journal(journal)
        if len(found.names) < 2:
            few = f"{len(found.names)} silo(s) are connected; at least 2 are needed"
            raise InputError("; ".join([few, *found.refused]))
        for line in found.refused:
            warnings.warn(f"a silo is left out: {line}", FedcollabWarning, stacklevel=3)
        why = f"not connected in {patience:.0f} s"
        self.begin_without({name: why for name in self.names if name not in found.names})

    @abstractmethod
    def _exchange(self, action: str, sent: dict[str, bytes]) -> Returned:
        """Carry packed messages to the silos and bring back what they answer."""

    def _carry(self, calls: Sequence[tuple[Action, dict[str, Message]]]) -> list[dict[str, Message]]:
        """Carry the messages of several calls together: one message to each silo."""
        if len(calls) == 1:
            return super()._carry(calls)
        names = sorted({name for _, messages in calls for name in messages})
        wanted = {name: [k for k, (_, messages) in enumerate(calls) if name in messages] for name in names}
        sent = {name: join_parts([(calls[k][0].name, pack(calls[k][1][name])) for k in wanted[name]]) for name in names}
        actions = ", ".join(dict.fromkeys(action.name for action, _ in calls))
        self.asked = Asked(actions, _round(message for _, messages in calls for message in messages.values()), names)
        returned = self._exchange(BUNDLE, sent)
        self.absent = returned.silent
        self.messages += len(sent)
        self.bytes_on_wire += sum(map(len, [*sent.values(), *returned.contents.values()]))
        replies: list[dict[str, Message]] = [{} for _ in calls]
        for name in names:
            for k, reply in zip(wanted[name], _parts(returned, name, len(wanted[name])), strict=True):
                if reply is not None:
                    replies[k][name] = reply
        return replies

    def _call(self, action: Action, messages: dict[str, Message]) -> dict[str, Message]:
        """Carry the messages of one call, and count them."""
        sent = {name: pack(message) for name, message in messages.items()}
        self.asked = Asked(action.name, _round(messages.values()), sorted(sent))
        returned = self._exchange(action.name, sent)
        self.absent = returned.silent
        self.messages += len(sent)
        self.bytes_on_wire += sum(map(len, [*sent.values(), *returned.contents.values()]))
        return returned.messages()


def _round(messages: Iterable[Message]) -> int | None:
    """Return the round that messages belong to, if they say it."""
    return next((int(message["round"]) for message in messages if "round" in message), None)


def _parts(returned: Returned, name: str, count: int) -> list[Message | None]:
    """Return a silo's replies to the parts of a bundle: None for each if it was silent, its failure if it failed."""
    if name in returned.failed:
        return [{"error": returned.failed[name]}] * count
    if name not in returned.contents:
        return [None] * count
    try:
        parts = split_parts(returned.contents[name])
    except InputError as error:
        return [{"garbage": str(error)}] * count
    if len(parts) != count:
        return [{"garbage": f"{len(parts)} replies to {count} messages"}] * count
    return [receive(content) for _, content in parts]
