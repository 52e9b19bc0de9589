"""What a runtime is: it carries messages to clients, has them act, and brings the replies back. Transport alone."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from fedcollab.data.client import ClientData
from fedcollab.errors import InputError, Paused
from fedcollab.files import now
from fedcollab.wire import absence
from fedcollab.wire.absence import Absence, Policy
from fedcollab.wire.action import Action, find
from fedcollab.wire.fields import BrokenMessage
from fedcollab.wire.limits import Limits
from fedcollab.wire.message import Message, payload


@dataclass
class Cost:
    """The traffic of a federation so far.

    Parameters
    ----------
    rounds : int
        How many rounds there were.
    down, up : dict of str to int
        Bytes of arrays sent to and received from each client.
    """

    rounds: int = 0
    down: dict[str, int] = field(default_factory=dict)
    up: dict[str, int] = field(default_factory=dict)

    def count(self, messages: Mapping[str, Message], replies: Mapping[str, Message]) -> None:
        """Add one round of messages and their replies.

        Parameters
        ----------
        messages, replies : mapping
            What was sent to and received from each client.
        """
        self.rounds += 1
        for name, message in messages.items():
            self.down[name] = self.down.get(name, 0) + payload(message)
        for name, reply in replies.items():
            self.up[name] = self.up.get(name, 0) + payload(reply)

    def copy(self) -> Cost:
        """Return an independent copy of the figures so far."""
        return Cost(self.rounds, dict(self.down), dict(self.up))

    def add(self, more: Cost) -> None:
        """Add the traffic that a shortcut avoided, so that every runtime reports the same cost."""
        self.rounds += more.rounds
        for mine, theirs in ((self.down, more.down), (self.up, more.up)):
            for name, amount in theirs.items():
                mine[name] = mine.get(name, 0) + amount

    def since(self, before: Cost) -> dict[str, Any]:
        """Return the rounds since an earlier copy, and the bytes to and from each client together."""
        moved = {
            name: sum(part.get(name, 0) for part in (self.down, self.up))
            - sum(part.get(name, 0) for part in (before.down, before.up))
            for name in sorted({*self.down, *self.up})
        }
        return {"rounds": self.rounds - before.rounds, "bytes": moved}


@dataclass(frozen=True, eq=False)
class Answered:
    """What one call brought back.

    Parameters
    ----------
    replies : dict
        The reply of each client that answered, in order of name.
    absent : mapping of str to str
        Who did not answer, and why.
    """

    replies: dict[str, dict[str, Any]]
    absent: Mapping[str, str]


class Runtime(ABC):
    """The way from server code to clients: it carries messages there and replies back.

    `call` sends one message to each named client, has it carry an action out, and returns the replies by name, in order
    of name, whatever order the messages came in. A client that does not answer pauses the run with one clear line,
    unless `partial` asks for the replies of those who did; `absent` says who did not, and why.

    Parameters
    ----------
    names : iterable of str
        The clients' stable names.
    policy : Policy, optional
        How often to ask again, and how many answers are enough.

    Attributes
    ----------
    names : tuple of str
        The clients, in order of name.
    cost : Cost
        The traffic so far.
    absent : mapping of str to str
        The clients that did not answer the last call, and why.
    missing : dict
        Clients that were not there from the beginning, with the reason; they are not in `names`.
    absences : list of Absence
        Every absence in this process.
    journal : Path or None
        The file that every absence is added to, if any.
    """

    #: whether a round costs seconds, so that procedures choose what takes few rounds
    few_rounds: ClassVar[bool] = False
    #: whether clients keep their trained models themselves; personal ones then do not leave them
    models_stay: ClassVar[bool] = False
    #: the fewest samples that procedures ask a client's numbers to be made of, by default
    min_samples: ClassVar[int] = Limits().min_samples
    #: whether replies come from elsewhere, and are checked
    checks: ClassVar[bool] = True
    #: whether clients outlive this process, and keep their state themselves
    lasting: ClassVar[bool] = False

    def __init__(self, names: Iterable[str], policy: Policy | None = None) -> None:
        self.names: tuple[str, ...] = tuple(sorted(names))
        self.cost = Cost()
        self.policy = policy or Policy()
        self.absent: Mapping[str, str] = {}
        self.missing: dict[str, str] = {}
        self.absences: list[Absence] = []
        self.journal: Path | None = None
        if len(set(self.names)) != len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise InputError(f"`clients` has the name {twice!r} twice; names must differ")

    def call(
        self, action: Action | str, messages: Mapping[str, Any], *, partial: bool = False
    ) -> dict[str, dict[str, Any]]:
        """Have each of the named clients carry an action out: one round.

        Parameters
        ----------
        action : Action or str
            What to do, or its name.
        messages : mapping
            A message for each client.
        partial : bool
            Return the replies of those who answered, as long as they are a quorum.

        Returns
        -------
        dict
            The reply of each client that answered, in order of name.

        Raises
        ------
        InputError
            If a name is not a client's.
        Paused
            If too few clients answered.
        """
        action = find(action)
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
        self._note(action.name, ordered, lost)
        needed = self.policy.enough(len(ordered)) if partial else len(ordered)
        if len(replies) < needed:
            number = next(iter(ordered.values())).get("round")
            where = f"`{action.name}`" if number is None else f"`{action.name}` of round {number}"
            raise Paused(
                f"{len(replies)} of {len(ordered)} client(s) answered {where}, {needed} must: "
                f"{absence.reasons(self.absent)}"
            )
        return {name: replies[name] for name in ordered if name in replies}

    def call_several(
        self, calls: Sequence[tuple[Action | str, Mapping[str, Any]]], *, partial: bool = False
    ) -> list[Answered]:
        """Have clients carry several actions out, one call after the other; a runtime may send them together.

        Parameters
        ----------
        calls : sequence of (Action or str, mapping)
            Each action, with a message for each client.
        partial : bool
            As in `call`.

        Returns
        -------
        list of Answered
            For each call the replies, and who did not answer.
        """
        return [
            Answered(self.call(action, messages, partial=partial), dict(self.absent)) if messages else Answered({}, {})
            for action, messages in calls
        ]

    def call_all(self, action: Action | str, message: Any, *, partial: bool = False) -> dict[str, dict[str, Any]]:
        """Call every client with the same message.

        Parameters
        ----------
        action : Action or str
            What to do, or its name.
        message : dict
            The message.
        partial : bool
            Return the replies of those who answered, as long as they are a quorum.

        Returns
        -------
        dict
            The reply of each client that answered, in order of name.

        Raises
        ------
        Paused
            If too few clients answered.
        """
        return self.call(action, dict.fromkeys(self.names, message), partial=partial)

    def keep_journal(self, folder: Path) -> None:
        """List absences in a run directory from now on, including those of this process so far."""
        path = folder / absence.FILE
        if self.journal != path:
            self.journal = path
            absence.write(path, self.absences)

    def begin_without(self, missing: Mapping[str, str]) -> None:
        """Note and leave out clients that are absent from the beginning, if the others are enough.

        Parameters
        ----------
        missing : mapping
            The reason for each client that is absent.

        Raises
        ------
        Paused
            If fewer than two clients, or fewer than the quorum, are left.
        """
        if not missing:
            return
        self._note("connect", {name: {} for name in missing}, {name: ("silent", why) for name, why in missing.items()})
        there, needed = len(self.names) - len(missing), max(2, self.policy.enough(len(self.names)))
        if there < needed:
            raise Paused(
                f"{there} of {len(self.names)} client(s) are there, {needed} must be: {absence.reasons(missing)}"
            )
        self.names = tuple(name for name in self.names if name not in missing)
        self.missing |= missing

    def states(self) -> dict[str, dict[str, Message]]:
        """Return what each client keeps of its training, if it lives in this process; `restore` gives it back."""
        return {}

    def restore(self, states: Mapping[str, Mapping[str, Message]]) -> None:
        """Give clients of this process back what `states` returned; clients elsewhere keep their own."""
        assert not states

    @abstractmethod
    def _call(self, action: Action, messages: dict[str, Message]) -> dict[str, Message]:
        """Carry the messages, in order of name; leave clients out that do not answer, with the reason in `absent`."""

    def _ask(self, action: Action, messages: dict[str, Message]) -> dict[str, Message | tuple[str, str]]:
        """Try once; return each client's reply, or the kind of its absence and the reason."""
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

    def _checked(self, action: Action, message: Message, reply: Message) -> Message | tuple[str, str]:
        if self.checks:
            try:
                action.check_reply(message, reply)
            except BrokenMessage as error:
                return "garbage", str(error)
        return reply

    def _note(self, action: str, messages: Mapping[str, Message], lost: Mapping[str, tuple[str, str]]) -> None:
        noted = [
            Absence(now(), action, messages[name].get("round"), name, kind, why)
            for name, (kind, why) in sorted(lost.items())
        ]
        self.absences += noted
        if self.journal is not None:
            absence.write(self.journal, noted)


def check_clients(clients: Iterable[ClientData]) -> list[ClientData]:
    """Check that there are at least two clients, and return them in order of name.

    Parameters
    ----------
    clients : iterable of ClientData
        The clients.

    Returns
    -------
    list of ClientData
        The same, in order of name.

    Raises
    ------
    InputError
        If there are fewer than two, or one is not a `ClientData`.
    """
    checked = list(clients)
    for client in checked:
        if not isinstance(client, ClientData):
            raise InputError(f"`clients` holds a {type(client).__name__}; expected ClientData")
    if len(checked) < 2:
        raise InputError(f"`clients` has {len(checked)} client(s); at least 2 are needed to ask who trains with whom")
    return sorted(checked, key=lambda client: client.name)
