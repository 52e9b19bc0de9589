"""The Flower runtime: calls carried over a Grid, one packed message a silo and round, with a deadline on everything.

Every call is a round trip through the SuperLink, so procedures count their rounds. Nodes are known by the
name under which the coordinator admitted their key; a node without one (an insecure federation) is asked for it once.
Error replies come from the SuperLink, not from the silo: they are told apart by the message they answer.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from uuid import uuid4

from flwr.app import Error, MessageType
from flwr.app import Message as FlowerMessage
from flwr.serverapp import Grid

from fedcollab.errors import InputError
from fedcollab.flower.compat import input_error_text, limit_uploads, unreadable
from fedcollab.flower.envelope import Answer, Envelope
from fedcollab.flower.protocol import (
    CLIENT_APP,
    HELLO,
    PROTOCOL,
    UNVERSIONED,
    WORKER_DIED,
    version_difference,
)
from fedcollab.flower.remote import DEADLINE, PATIENCE, Found, RemoteRuntime, Returned
from fedcollab.wire.absence import Policy

POLL = 0.3  # seconds between two looks for silos that connect
FIRST, LONGEST, GROWTH = 0.1, 1.0, 1.3  # seconds between two looks for answers: after one, at most; how fast they grow
BATCH = 32 << 20  # bytes that are pushed together, since Flower holds a batch in memory twice
LATE = "no answer in {:.0f} s"

#: Flower's errors that mean that a silo did not answer; any other is the silo's failure
SILENT = {3: LATE, 5: "it is not connected any more"}


class Flower(RemoteRuntime):
    """The silos behind a Grid, as a runtime for use inside a ServerApp.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Flower's grid.
    names : iterable of str, optional
        The silos to work with; default: those that are connected now.
    deadline : float
        Seconds for one call; who has not answered by then is absent.
    patience : float
        Seconds to wait for the named silos to connect; who has not by then is left out, if a quorum has.
    policy : Policy, optional
        How often to ask again, and how many answers are enough.

    Raises
    ------
    InputError
        If fewer than two silos are connected, or two have the same name.
    Paused
        If fewer of the named silos are connected than the policy's quorum.
    """

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
        super().__init__(wanted, self.exchange.find(wanted, patience), patience, policy or Policy(deadline=deadline))

    def _exchange(self, action: str, sent: dict[str, bytes]) -> Returned:
        return self.exchange(action, sent)


class Exchange:
    """Bytes to silos and back over a Grid, by name of the silo.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Flower's grid.
    deadline : float
        Seconds for one call.

    Attributes
    ----------
    nodes : dict
        Flower's node ids of the silos that were found, by name.
    refused : dict
        Why nodes without a name were left out, by node id.
    """

    def __init__(self, grid: Grid, deadline: float = DEADLINE) -> None:
        self.grid, self.deadline = grid, deadline
        self.nodes: dict[str, int] = {}
        self.refused: dict[int, str] = {}
        self._session, self._calls = uuid4().hex, 0

    def find(self, names: Collection[str] | None, patience: float) -> Found:
        """Wait for silos to connect.

        Parameters
        ----------
        names : collection of str or None
            The silos to wait for; None: any two.
        patience : float
            Seconds to wait.

        Returns
        -------
        Found
            The silos that are connected: those of `names`, or all.
        """
        end = time.monotonic() + patience
        while True:
            self.nodes = self._connected()
            complete = len(self.nodes) > 1 if names is None else set(names) <= self.nodes.keys()
            if complete or time.monotonic() > end:
                found = self.nodes.keys() if names is None else set(names) & self.nodes.keys()
                return Found(sorted(found), list(self.refused.values()))
            time.sleep(POLL)

    def __call__(self, action: str, sent: Mapping[str, bytes]) -> Returned:
        """Carry one packed message to each named silo and wait for the answers, until the deadline."""
        self._calls += 1
        call = f"{self._session}-{self._calls}"
        envelopes = {name: Envelope(action, name, call, content) for name, content in sent.items()}
        answers, silent = self._carry({name: (self.nodes[name], envelopes[name]) for name in sent})
        failed = {name: answer.error for name, answer in answers.items() if answer.error}
        for name, answer in answers.items():
            if not answer.error and answer.name != name:
                failed[name] = f"the silo's own config names it `{answer.name}`"
        contents = {name: answers[name].content for name in sent if name in answers and name not in failed}
        return Returned(contents, silent, failed)

    def _message(self, node: int, envelope: Envelope) -> FlowerMessage:
        """Return an envelope as a Flower message to a node; Flower shows the call's number as the round."""
        group = str(self._calls)
        return FlowerMessage(envelope.records(), node, MessageType.QUERY, ttl=self.deadline, group_id=group)

    def _carry(self, asked: dict[str, tuple[int, Envelope]]) -> tuple[dict[str, Answer], dict[str, str]]:
        """Push all, then pull until everyone has answered or the deadline is over; and who did not, with the reason."""
        end = time.monotonic() + self.deadline
        waiting: dict[str, str] = {}
        answers: dict[str, Answer] = {}
        silent: dict[str, str] = {}
        for names in _batches({name: len(envelope.content) for name, (_, envelope) in asked.items()}):
            messages = [self._message(*asked[name]) for name in names]
            identifiers = list(self.grid.push_messages(messages)) or [""] * len(names)
            for name, identifier in zip(names, identifiers, strict=True):
                if identifier:
                    waiting[identifier] = name
                else:
                    silent[name] = "not connected"
        pause = FIRST
        while waiting:
            late = time.monotonic() >= end  # one last look: a reply broken off may have kept the others waiting
            with limit_uploads(self.grid, end):
                replies = list(self.grid.pull_messages(list(waiting)))
            for reply in replies:
                name = waiting.pop(reply.metadata.reply_to_message_id, "")
                if not name:  # a silo writes into its reply what it replies to; nobody asked this
                    continue
                if not reply.has_error():
                    answers[name] = _opened(reply)
                elif wrong := unreadable(str(reply.error.reason)):
                    answers[name] = Answer(name, error=wrong)
                elif reply.error.code in SILENT:
                    silent[name] = SILENT[reply.error.code].format(self.deadline)
                elif input_error_text(str(reply.error.reason)) == WORKER_DIED:
                    silent[name] = WORKER_DIED
                else:
                    answers[name] = Answer(name, error=_failure(reply.error))
            if late:
                break
            if waiting:
                pause = FIRST if replies else min(GROWTH * pause, LONGEST)
                time.sleep(max(0.0, min(pause, end - time.monotonic())))
        return answers, silent | dict.fromkeys(waiting.values(), LATE.format(self.deadline))

    def _connected(self) -> dict[str, int]:
        """Return the connected nodes by name; those without one are asked for it, and left out if they refuse."""
        known = {node: name for name, node in self.nodes.items()}
        there = {node.node_id: node.name or known.get(node.node_id, "") for node in self.grid.get_nodes()}
        nameless = [node for node, name in there.items() if not name and node not in self.refused]
        if nameless:
            there |= self._ask_names(nameless)
        found: dict[str, int] = {}
        for node, name in sorted(there.items()):
            if name in found:
                raise InputError(f"two silos are called `{name}`; names must differ")
            if name:
                found[name] = node
        return found

    def _ask_names(self, nodes: list[int]) -> dict[int, str]:
        """Return what nodes are called in their own configs; why others gave no name is kept in `refused`."""
        hello = Envelope(HELLO, "", "", b"")
        answers, _ = self._carry({str(node): (node, hello) for node in nodes})
        self.refused |= {int(node): answer.error for node, answer in answers.items() if answer.error}
        return {int(node): answer.name for node, answer in answers.items() if not answer.error}


def _batches(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Yield names in batches of at most `BATCH` bytes; one that is larger alone is a batch."""
    batch: list[str] = []
    held = 0
    for name, size in sizes.items():
        if batch and held + size > BATCH:
            yield batch
            batch, held = [], 0
        batch.append(name)
        held += size
    if batch:
        yield batch


def _opened(reply: FlowerMessage) -> Answer:
    """Return the answer in a reply, whatever a silo put there."""
    try:
        return Answer.open(reply.content)
    except Exception as error:
        return Answer("", error=f"its reply cannot be read ({type(error).__name__})")


def _failure(error: Error) -> str:
    """Return one line for an error that Flower reports of a silo's process."""
    reason = " ".join(str(error.reason).split())
    if CLIENT_APP in reason:  # a silo without versions refuses the app for its component's name, which is new to it
        return version_difference(coordinator=PROTOCOL, silo=UNVERSIONED)
    return input_error_text(reason) or f"Flower's error {error.code}: {reason[:300]}"
