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
_making_locks = threading.Lock()


class CoalitionGrid(Grid):
    """The nodes of one coalition, as a Grid of their own.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        The Grid of all nodes.
    members : iterable of str or int
        The coalition: names under which silos were registered (`flwr supernode register --name`), or node ids.

    Raises
    ------
    InputError
        If a member is not connected.

    Examples
    --------
    >>> strategy.start(grid=CoalitionGrid(grid, ["north", "south"]), initial_arrays=arrays)  # doctest: +SKIP
    """

    def __init__(self, grid: Grid, members: Iterable[str | int]) -> None:
        super().__init__()
        self._grid, self._members = grid, frozenset(members)
        with _making_locks:
            self._lock = _locks.setdefault(grid, threading.RLock())
        missing = [member for member in sorted(self._members, key=str) if member not in self._known()]
        if missing:
            raise InputError(f"`members` has {missing[0]!r}, which is no connected node of this grid")

    def set_run(self, run: Any) -> None:
        """Tell the Grid which run it serves; Flower calls this."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """The run that the Grid serves."""
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Make a message to a node."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_nodes(self) -> Iterable[Any]:
        """Return the coalition's nodes that are connected."""
        with self._lock:
            return [node for node in self._grid.get_nodes() if {node.node_id, node.name} & self._members]

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the coalition's nodes that are connected."""
        return [node.node_id for node in self.get_nodes()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages to nodes of the coalition and return their ids; raise InputError for any other node."""
        listed = list(messages)
        inside = set(self.get_node_ids())
        for message in listed:
            if message.metadata.dst_node_id not in inside:
                raise InputError(f"node {message.metadata.dst_node_id} is not in this coalition, or not connected")
        with self._lock:
            return self._grid.push_messages(listed)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies to these messages that have come in."""
        with self._lock:
            return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and wait for the replies, while other coalitions go on.

        Parameters
        ----------
        messages : iterable of flwr.app.Message
            Messages to nodes of the coalition.
        timeout : float, optional
            Seconds to wait; default: until all have answered.

        Returns
        -------
        list of flwr.app.Message
            The replies that came in.
        """
        waiting = set(self.push_messages(messages))
        end = None if timeout is None else time.monotonic() + timeout
        replies: list[Message] = []
        while waiting and (end is None or time.monotonic() < end):
            received = list(self.pull_messages(waiting))
            replies += received
            waiting -= {reply.metadata.reply_to_message_id for reply in received}
            if waiting:
                time.sleep(POLL)
        return replies

    def _known(self) -> set[str | int]:
        """Return ids and names of all connected nodes."""
        with self._lock:
            return {known for node in self._grid.get_nodes() for known in (node.node_id, node.name)}
