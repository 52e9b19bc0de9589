"""What a runtime is: it carries messages to clients, has them act, and brings the replies back. Transport alone."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from fedcollab.data.client import ClientData
from fedcollab.errors import InputError, Paused, one_line
from fedcollab.files import now
from fedcollab.wire import absence
from fedcollab.wire.absence import Absence, Policy
from fedcollab.wire.action import Action, find
from fedcollab.wire.calls import Answered, Calls
from fedcollab.wire.fields import BrokenMessage
from fedcollab.wire.limits import Limits
from fedcollab.wire.message import Message, payload

OF_TRAINING = ("train", "model")  # how the names begin under which clients keep what a training left with them


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
        """Add messages and their replies.

        Parameters
        ----------
        messages, replies : mapping
            What was sent to and received from each client.
        """
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


class Runtime(Calls):
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
        self._names = tuple(sorted(names))
        self.cost = Cost()
        self.policy = policy or Policy()
        self.absent: Mapping[str, str] = {}
        self.missing: dict[str, str] = {}
        self.absences: list[Absence] = []
        self.journal: Path | None = None
        if len(set(self.names)) != len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise InputError(f"`clients` has the name {twice!r} twice; names must differ")

    @property
    def names(self) -> tuple[str, ...]:
        """Return the clients' names in order, without those that were not there from the beginning."""
        return self._names

    def call_several(
        self, calls: Sequence[tuple[Action | str, Mapping[str, Any]]], *, partial: bool = False
    ) -> list[Answered]:
        """Carry the messages of one round, and ask those again that did not answer; see `Calls.call_several`."""
        actions = [find(action) for action, _ in calls]
        unknown = sorted({name for _, messages in calls for name in messages} - set(self.names))
        if unknown:
            raise InputError(f"`messages` names {unknown[0]!r}, which is not a client of this federation")
        ordered = [{name: messages[name] for name in sorted(messages)} for _, messages in calls]
        replies: list[dict[str, Message]] = [{} for _ in calls]
        lost: list[dict[str, tuple[str, str]]] = [{} for _ in calls]
        waiting = ordered
        late = set(self.absent) if partial else set()  # absent last time already: asked, but not waited for again
        for attempt in range(1 + self.policy.retries):
            if attempt:
                time.sleep(self.policy.wait)
            for position, answers in enumerate(self._ask(list(zip(actions, waiting, strict=True)))):
                for name, answer in answers.items():
                    if isinstance(answer, dict):
                        replies[position][name] = answer
                    else:
                        lost[position][name] = answer
            waiting = [
                {
                    name: message
                    for name, message in sent.items()
                    if name not in replies[k] and name not in late and lost[k][name][0] in absence.AGAIN
                }
                for k, sent in enumerate(waiting)
            ]
            if not any(waiting):
                break
        answered = []
        for action, sent, found, missing in zip(actions, ordered, replies, lost, strict=True):
            missing = {name: why for name, why in missing.items() if name not in found}
            answered.append(Answered({name: found[name] for name in sent if name in found}, _reasons(missing)))
            self._note(action.name, sent, missing)
        self.absent = {name: why for each in answered for name, why in each.absent.items()}
        for action, sent, each in zip(actions, ordered, answered, strict=True):
            self._require(action, sent, each, partial)
        return answered

    def _require(self, action: Action, sent: Mapping[str, Message], answered: Answered, partial: bool) -> None:
        """Raise `Paused` if fewer clients answered a call than must."""
        needed = self.policy.enough(len(sent)) if partial else len(sent)
        if len(answered.replies) < needed:
            number = next(iter(sent.values())).get("round")
            where = f"`{action.name}`" if number is None else f"`{action.name}` of round {number}"
            raise Paused(
                f"{len(answered.replies)} of {len(sent)} client(s) answered {where}, {needed} must: "
                f"{absence.reasons(answered.absent)}"
            )

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
        self._names = tuple(name for name in self.names if name not in missing)
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

    def _carry(self, calls: Sequence[tuple[Action, dict[str, Message]]]) -> list[dict[str, Message]]:
        """Carry the messages of several calls; by default one call after the other, as `_call` does."""
        return [self._call(action, messages) if messages else {} for action, messages in calls]

    def _ask(self, calls: Sequence[tuple[Action, dict[str, Message]]]) -> list[dict[str, Message | tuple[str, str]]]:
        """Try once; return for each call each client's reply, or the kind of its absence and the reason."""
        self.absent = {}
        carried = self._carry(calls)
        self.cost.rounds += 1
        answers = []
        for (action, messages), replies in zip(calls, carried, strict=True):
            self.cost.count(messages, replies)
            answers.append({name: self._answer(action, name, m, replies) for name, m in messages.items()})
        return answers

    def _answer(
        self, action: Action, name: str, message: Message, replies: Mapping[str, Message]
    ) -> Message | tuple[str, str]:
        """Return a client's reply, or the kind of its absence and the reason."""
        if name not in replies:
            return "silent", self.absent.get(name, "no answer")
        kind = next((kind for kind in absence.EXCUSES if kind in replies[name]), None)
        if kind is None:
            return self._checked(action, message, replies[name])
        return absence.EXCUSES[kind], one_line(replies[name][kind], 500)

    def _checked(self, action: Action, message: Message, reply: Message) -> Message | tuple[str, str]:
        if self.checks:
            try:
                action.check_reply(message, reply)
            except BrokenMessage as error:
                return "garbage", one_line(error)
        return reply

    def _note(self, action: str, messages: Mapping[str, Message], lost: Mapping[str, tuple[str, str]]) -> None:
        """Record who did not answer a call, and append it to the journal if there is one."""
        noted = [
            Absence(now(), action, messages[name].get("round"), name, kind, why)
            for name, (kind, why) in sorted(lost.items())
        ]
        self.absences += noted
        if self.journal is not None:
            absence.write(self.journal, noted)


def _reasons(lost: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Return the reason of each absence, in order of name."""
    return {name: lost[name][1] for name in sorted(lost)}


def check_clients(clients: Iterable[ClientData]) -> list[ClientData]:
    """Check that there are at least two clients, and return them in order of name.

    Parameters
    ----------
    clients : iterable of ClientData
        The clients.

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
