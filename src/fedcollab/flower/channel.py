"""Messages over a local connection: how the coordinator's command and the ServerApp of its run talk.

A message is a JSON object and bytes by name: one frame for the object, one for each name in it. Frames are bytes, sent
by `multiprocessing.connection`; its pickling `send` and `recv` are never used. An end that dies closes the connection,
so that the other never waits for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

Parts = tuple[dict[str, Any], dict[str, bytes]]  # a JSON object, and bytes by name


class ChannelClosed(ConnectionError):
    """The other end has closed the connection."""


class Channel:
    """One end of a connection.

    Parameters
    ----------
    connection : multiprocessing.connection.Connection
        The connection, authenticated.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, header: Mapping[str, Any], contents: Mapping[str, bytes] | None = None) -> None:
        """Send a message.

        Parameters
        ----------
        header : mapping
            A JSON object.
        contents : mapping, optional
            Bytes, by name.

        Raises
        ------
        ChannelClosed
            If the other end is gone.
        """
        contents = contents or {}
        try:
            for frame in (json.dumps({**header, "contents": list(contents)}).encode(), *contents.values()):
                self._connection.send_bytes(frame)
        except OSError as error:
            raise ChannelClosed(str(error)) from None

    def receive(self, timeout: float | None = None) -> Parts:
        """Wait for what the other end sends.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for a message to begin; default: no limit.

        Returns
        -------
        header : dict
            The JSON object.
        contents : dict
            The bytes, by name.

        Raises
        ------
        TimeoutError
            If nothing was sent in time.
        ChannelClosed
            If the other end is gone.
        """
        try:
            sent = self._connection.poll(timeout)
            if sent:
                header: dict[str, Any] = json.loads(self._connection.recv_bytes())
                return header, {name: self._connection.recv_bytes() for name in header.pop("contents")}
        except (EOFError, OSError) as error:
            raise ChannelClosed(str(error)) from None
        raise TimeoutError

    def close(self) -> None:
        """Close this end of the connection; whoever waits at the other end gets `ChannelClosed`."""
        self._connection.close()
