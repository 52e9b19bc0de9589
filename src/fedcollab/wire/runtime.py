"""What a runtime is: it carries messages to clients, has them act, and brings the replies back."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from fedcollab.data.client import ClientData
from fedcollab.errors import InputError, Paused
from fedcollab.wire import absence, contract
from fedcollab.wire.absence import Absence, Policy
from fedcollab.wire.limits import Floors
from fedcollab.wire.message import Message, payload

if TYPE_CHECKING:
    from fedcollab.federation.prepare import Schema


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
    replies by name, in order of name, whatever order the messages came in. A client that does not answer pauses the run
    with one clear line, unless `partial` asks for the replies of those who did; `absent` says who did not, and why.

    `schema` and `described` are set by `clients.schema.prepare`: what the federation agreed on, and what each client
    said of itself (quantity, label counts). A client that was absent then is no longer in `names`, but in `left_out`.

    policy     how often to ask again, and how many answers are enough
    journal    the file that every absence is added to, if any; `absences` are those of this process
    """

    #: whether a round costs seconds, so that procedures choose what takes few rounds
    few_rounds: bool = False
    #: whether clients keep their trained models themselves; personal ones then do not leave them
    models_stay: bool = False
    #: the floor of samples that procedures ask of clients by default: see `distances.floor`
    min_samples: int = Floors.min_samples
    schema: Schema | None = None
    described: Mapping[str, Message]
    absent: Mapping[str, str]
    journal: Path | None = None
    checks: ClassVar[bool] = True  # whether replies come from elsewhere, and are checked
    lasting: ClassVar[bool] = False  # whether clients outlive this process, and keep their state themselves

    def __init__(self, names: Iterable[str], policy: Policy | None = None) -> None:
        self.names: tuple[str, ...] = tuple(sorted(names))
        self.cost = Cost()
        self.policy = policy or Policy()
        self.described, self.absent = {}, {}
        self.left_out: dict[str, str] = {}
        self.absences: list[Absence] = []
        if len(set(self.names)) != len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise InputError(f"`clients` has the name {twice!r} twice; names must differ")

    def call(self, action: str, messages: Mapping[str, Message], *, partial: bool = False) -> dict[str, Message]:
        """One round: an action at each of the named clients.

        With `partial`, the replies of those who answered, as long as they are a quorum.
        """
        unknown = sorted(set(messages) - set(self.names))
        if unknown:
            raise InputError(f"`messages` names {unknown[0]!r}, which is not a client of this federation")
        ordered = {name: messages[name] for name in sorted(messages)}
        replies: dict[str, Message] = {}
        lost: dict[str, tuple[str, str]] = {}
        waiting = ordered
        for attempt in range(1 + self.policy.retries):
            if attempt:
                time.sleep(self.policy.wait)
            answers = self._ask(action, waiting)
            replies |= {name: answer for name, answer in answers.items() if isinstance(answer, dict)}
            lost |= {name: answer for name, answer in answers.items() if not isinstance(answer, dict)}
            waiting = {
                name: ordered[name] for name in waiting if name not in replies and lost[name][0] in absence.AGAIN
            }
            if not waiting:
                break
        lost = {name: why for name, why in lost.items() if name not in replies}
        self.absent = {name: lost[name][1] for name in sorted(lost)}
        self._note(action, ordered, lost)
        needed = self.policy.enough(len(ordered)) if partial else len(ordered)
        if len(replies) < needed:
            number = next(iter(ordered.values())).get("round")
            where = f"`{action}`" if number is None else f"`{action}` of round {number}"
            raise Paused(
                f"{len(replies)} of {len(ordered)} client(s) answered {where}, {needed} must: "
                f"{absence.reasons(self.absent)}"
            )
        return {name: replies[name] for name in ordered if name in replies}

    def call_all(self, action: str, message: Message, *, partial: bool = False) -> dict[str, Message]:
        """One round with the same message for everyone."""
        return self.call(action, dict.fromkeys(self.names, message), partial=partial)

    def keep_journal(self, folder: Path) -> None:
        """List absences in a run directory from now on, those that there were already included."""
        path = folder / absence.FILE
        if self.journal != path:
            self.journal = path
            absence.write(path, self.absences)

    def leave_out(self, absent: Mapping[str, str]) -> None:
        """Go on without these clients; at least two must be left."""
        left = tuple(name for name in self.names if name not in absent)
        if len(left) < 2:
            raise Paused(f"{len(left)} client(s) left, 2 must be: {absence.reasons(absent)}")
        self.names = left
        self.left_out |= absent
        self.described = {name: reply for name, reply in self.described.items() if name in left}

    def begin_without(self, missing: Mapping[str, str]) -> None:
        """Clients that were not there from the beginning: noted and left out, if those who are there are enough."""
        if not missing:
            return
        self._note("connect", {name: {} for name in missing}, {name: ("silent", why) for name, why in missing.items()})
        there, needed = len(self.names) - len(missing), self.policy.enough(len(self.names))
        if there < needed:
            raise Paused(
                f"{there} of {len(self.names)} client(s) are there, {needed} must be: {absence.reasons(missing)}"
            )
        self.leave_out(missing)

    def states(self) -> dict[str, dict[str, Message]]:
        """What each client keeps of its training, where it lives in this process; `restore` gives it back."""
        return {}

    def restore(self, states: Mapping[str, Mapping[str, Message]]) -> None:
        """Have clients of this process keep what `states` gave; those elsewhere keep their own."""
        assert not states

    @abstractmethod
    def _call(self, action: str, messages: dict[str, Message]) -> dict[str, Message]:
        """Carry the messages, in order of name; who does not answer is left out, with the reason in `absent`."""

    def _ask(self, action: str, messages: dict[str, Message]) -> dict[str, Message | tuple[str, str]]:
        """One try: each client's reply, or how it is absent and why."""
        self.absent = {}
        replies = self._call(action, messages)
        self.cost.count(messages, replies)
        found: dict[str, Message | tuple[str, str]] = {}
        for name, message in messages.items():
            if name not in replies:
                found[name] = ("silent", self.absent.get(name, "no answer"))
                continue
            kind = next((kind for kind in absence.EXCUSES if kind in replies[name]), None)
            if kind is None:
                found[name] = self._checked(action, message, replies[name])
            else:
                found[name] = (absence.EXCUSES[kind], str(replies[name][kind])[:500])
        return found

    def _checked(self, action: str, message: Message, reply: Message) -> Message | tuple[str, str]:
        if self.checks:
            try:
                contract.check_reply(action, message, reply)
            except contract.Broken as error:
                return "garbage", str(error)
        return reply

    def _note(self, action: str, messages: Mapping[str, Message], lost: Mapping[str, tuple[str, str]]) -> None:
        from fedcollab.runs.directory import now

        noted = [
            Absence(now(), action, messages[name].get("round"), name, kind, why)
            for name, (kind, why) in sorted(lost.items())
        ]
        self.absences += noted
        if self.journal is not None:
            absence.write(self.journal, noted)


def check_clients(clients: Iterable[ClientData]) -> list[ClientData]:
    """The clients in order of name, at least two of them and all with one name each."""
    checked = list(clients)
    for client in checked:
        if not isinstance(client, ClientData):
            raise InputError(f"`clients` holds a {type(client).__name__}; expected ClientData")
    if len(checked) < 2:
        raise InputError(f"`clients` has {len(checked)} client(s); at least 2 are needed to ask who trains with whom")
    return sorted(checked, key=lambda client: client.name)
