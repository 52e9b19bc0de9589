"""The Flower runtime: calls carried over a Grid, one packed message a silo and round, with a deadline on everything.

A message costs seconds (a process starts at the silo for it), so procedures count their rounds. Nodes are known by the
name under which the coordinator admitted their key; a node without one (an insecure federation) is asked for it once.
Error replies come from the SuperLink, not from the silo: they are told apart by the message they answer.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from flwr.app import Message as FlowerMessage
from flwr.app import MessageType
from flwr.serverapp import Grid

from fedcollab.errors import InputError
from fedcollab.flower.envelope import Answer, Envelope
from fedcollab.wire.absence import Policy
from fedcollab.wire.message import Message, pack, receive
from fedcollab.wire.runtime import Runtime

DEADLINE = 600.0  # seconds for one call, from sending the first message to the last reply
PATIENCE = 120.0  # seconds for the silos to be there
POLL = 0.3
SHARE = 0.75  # of what is left of the deadline that a reply may take to come in once it was announced
HELLO = "hello"
LATE = "no answer in {:.0f} s"

#: Flower's errors that mean that a silo did not answer; any other is the silo's failure
SILENT = {3: LATE, 5: "it is not connected any more"}

Nodes = dict[str, int]


@dataclass(frozen=True)
class Returned:
    """What came back, by name: contents; of who did not answer, why; of who answered that it cannot, why."""

    contents: dict[str, bytes]
    silent: dict[str, str]
    failed: dict[str, str]

    def messages(self) -> dict[str, Message]:
        """As replies: a failure is one that says so (see `runtime.absence`)."""
        failed: dict[str, Message] = {name: {"error": why} for name, why in self.failed.items()}
        return {name: receive(content) for name, content in self.contents.items()} | failed


class Flower(Runtime):
    """The silos behind a Grid.

    names      the silos to work with; None: those that are connected now
    deadline   seconds for one call; who has not answered by then is absent
    patience   seconds to wait for the named silos to connect; who has not by then is left out, if a quorum has
    """

    few_rounds = models_stay = lasting = True

    def __init__(
        self,
        grid: Grid,
        *,
        names: Iterable[str] | None = None,
        deadline: float = DEADLINE,
        patience: float = PATIENCE,
        policy: Policy | None = None,
    ) -> None:
        self.exchange = Exchange(grid, deadline)
        wanted = None if names is None else set(names)
        found = self.exchange.find(wanted, patience)
        super().__init__(wanted or found, policy or Policy(deadline=deadline))
        if len(found) < 2:
            raise InputError(f"{len(found)} silo(s) are connected; at least 2 are needed")
        self.begin_without({name: f"not connected in {patience:.0f} s" for name in self.names if name not in found})

    def _call(self, action: str, messages: dict[str, Message]) -> dict[str, Message]:
        sent = {name: pack(message) for name, message in messages.items()}
        returned = self.exchange(action, sent)
        self.absent = returned.silent
        return returned.messages()


class Exchange:
    """Bytes to silos and back, by name."""

    def __init__(self, grid: Grid, deadline: float = DEADLINE) -> None:
        self.grid, self.deadline = grid, deadline
        self.nodes: Nodes = {}
        self._session, self._calls = uuid4().hex, 0

    def find(self, names: Collection[str] | None, patience: float) -> list[str]:
        """The silos that are there: with `names`, those of these that connect in time; else all that are connected."""
        end = time.monotonic() + patience
        while True:
            self.nodes = self._connected()
            missing = [] if names is None else sorted(set(names) - self.nodes.keys())
            if not missing and (names is not None or len(self.nodes) > 1):
                break
            if time.monotonic() > end:
                break
            time.sleep(POLL)
        return sorted(self.nodes if names is None else set(names) & self.nodes.keys())

    def __call__(self, action: str, sent: Mapping[str, bytes]) -> Returned:
        """One round."""
        self._calls += 1
        call = f"{self._session}-{self._calls}"
        messages = {
            name: FlowerMessage(
                Envelope(action, name, call, content).records(),
                dst_node_id=self.nodes[name],
                message_type=MessageType.QUERY,
                ttl=self.deadline,
                group_id=str(self._calls),
            )
            for name, content in sent.items()
        }
        answers, silent = self._carry(messages)
        failed = {name: answer.error for name, answer in answers.items() if answer.error}
        for name, answer in answers.items():
            if not answer.error and answer.name != name:
                failed[name] = f"the silo calls itself `{answer.name}`"
        contents = {name: answers[name].content for name in sent if name in answers and name not in failed}
        return Returned(contents, silent, failed)

    def _carry(self, messages: dict[str, FlowerMessage]) -> tuple[dict[str, Answer], dict[str, str]]:
        """Push all, then pull until everyone has answered or the deadline is over; and who did not, with the reason."""
        end = time.monotonic() + self.deadline
        waiting: dict[str, str] = {}
        answers: dict[str, Answer] = {}
        silent: dict[str, str] = {}
        for name, message in messages.items():
            identifiers = list(self.grid.push_messages([message]))
            if identifiers and identifiers[0]:
                waiting[identifiers[0]] = name
            else:
                silent[name] = "not connected"
        while waiting:
            late = time.monotonic() >= end  # one last look: a reply broken off may have kept the others waiting
            with uploads_until(self.grid, end):
                replies = list(self.grid.pull_messages(list(waiting)))
            for reply in replies:
                name = waiting.pop(reply.metadata.reply_to_message_id)
                if not reply.has_error():
                    answers[name] = Answer.open(reply.content)
                elif reply.error.code in SILENT:
                    silent[name] = SILENT[reply.error.code].format(self.deadline)
                else:
                    reason = " ".join(str(reply.error.reason).split())[:300]
                    answers[name] = Answer(name, error=f"Flower's error {reply.error.code}: {reason}")
            if late:
                break
            if waiting:
                time.sleep(POLL)
        return answers, silent | dict.fromkeys(waiting.values(), LATE.format(self.deadline))

    def _connected(self) -> Nodes:
        """Names of the nodes that are there; those without one are asked."""
        known = {node: name for name, node in self.nodes.items()}
        there = {node.node_id: node.name or known.get(node.node_id, "") for node in self.grid.get_nodes()}
        nameless = [node for node, name in there.items() if not name]
        if nameless:
            there |= self._ask(nameless)
        found: Nodes = {}
        for node, name in sorted(there.items()):
            if name in found:
                raise InputError(f"two silos are called `{name}`; names must differ")
            if name:
                found[name] = node
        return found

    def _ask(self, nodes: list[int]) -> dict[int, str]:
        """What nodes call themselves."""
        hello = Envelope(HELLO, "", "", b"").records()
        asked = {str(node): FlowerMessage(hello, node, MessageType.QUERY, ttl=self.deadline) for node in nodes}
        return {int(node): answer.name for node, answer in self._carry(asked)[0].items() if not answer.error}


@contextmanager
def uploads_until(grid: Grid, end: float) -> Iterator[None]:
    """Within the block, a reply of which a part never comes is given up before `end` (of `time.monotonic`).

    Flower takes one reply after the other, so that time is left for those that came in while it waited.

    A silo that dies while it sends has announced its reply; Flower 1.41 then waits two hours for the rest of it.
    """
    module: Any = sys.modules[type(grid).__module__]
    pull = getattr(module, "pull_objects", None)
    if pull is None:  # a grid in memory: a reply is there, or it is not
        yield
        return

    def bounded(*arguments: Any, **options: Any) -> Any:
        return pull(*arguments, **options, max_time=max(1.0, SHARE * (end - time.monotonic())))

    module.pull_objects = bounded
    try:
        yield
    finally:
        module.pull_objects = pull
