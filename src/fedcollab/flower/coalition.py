"""A Grid that sees one coalition's nodes only: an existing Flower app runs its own strategy inside each coalition.

    for members in collaboration.coalitions:
        FedAvg(...).start(grid=CoalitionGrid(grid, members), initial_arrays=arrays, num_rounds=3)

Coalitions may run one after the other or in threads: Grids of different coalitions share nothing but the connection,
which is used by one at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedcollab.errors import InputError

POLL = 1.0

_locks: WeakKeyDictionary[Grid, threading.RLock] = WeakKeyDictionary()
_guard = threading.Lock()


class CoalitionGrid(Grid):
    """Part of another Grid.

    members   the coalition: names under which silos were registered (`flwr supernode register --name`), or node ids
    """

    def __init__(self, grid: Grid, members: Iterable[str | int]) -> None:
        super().__init__()
        self._grid, self._members = grid, frozenset(members)
        with _guard:
            self._lock = _locks.setdefault(grid, threading.RLock())
        missing = [member for member in sorted(self._members, key=str) if member not in self._known()]
        if missing:
            raise InputError(f"`members` has {missing[0]!r}, which is no connected node of this grid")

    def set_run(self, run: Any) -> None:
        """Flower's own business."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """Flower's run."""
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """A message to a node of the coalition."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_nodes(self) -> Iterable[Any]:
        """The coalition's nodes that are connected."""
        with self._lock:
            return [node for node in self._grid.get_nodes() if {node.node_id, node.name} & self._members]

    def get_node_ids(self) -> Iterable[int]:
        """Their ids."""
        return [node.node_id for node in self.get_nodes()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send to nodes of the coalition; to any other is refused."""
        listed = list(messages)
        inside = set(self.get_node_ids())
        for message in listed:
            if message.metadata.dst_node_id not in inside:
                raise InputError(f"node {message.metadata.dst_node_id} is not in this coalition, or not connected")
        with self._lock:
            return self._grid.push_messages(listed)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Replies that are there."""
        with self._lock:
            return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send, and wait for all replies or for the timeout; other coalitions go on meanwhile."""
        waiting = set(self.push_messages(messages))
        end = None if timeout is None else time.monotonic() + timeout
        replies: list[Message] = []
        while waiting and (end is None or time.monotonic() < end):
            came = list(self.pull_messages(waiting))
            replies += came
            waiting -= {reply.metadata.reply_to_message_id for reply in came}
            if waiting:
                time.sleep(POLL)
        return replies

    def _known(self) -> set[str | int]:
        with self._lock:
            return {known for node in self._grid.get_nodes() for known in (node.node_id, node.name)}
