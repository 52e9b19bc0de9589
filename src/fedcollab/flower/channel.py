"""Frames over a local socket: how the coordinator's command and the ServerApp of its run talk. JSON and bytes, no code.

A call is a JSON frame and one frame of bytes for each name in it; so is its answer. An end that dies closes the socket,
so that the other never waits for it.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

_LENGTH = struct.Struct("!Q")


class Closed(ConnectionError):
    """The other end is gone."""


class Channel:
    """One end of the line."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line

    def send(self, about: Mapping[str, Any], contents: Mapping[str, bytes] | None = None) -> None:
        """One JSON object, and bytes by name."""
        contents = contents or {}
        self._frame(json.dumps({**about, "contents": list(contents)}).encode())
        for content in contents.values():
            self._frame(content)

    def receive(self, timeout: float | None = None) -> tuple[dict[str, Any], dict[str, bytes]]:
        """What `send` sent; `TimeoutError` where nothing comes."""
        self._line.settimeout(timeout)
        about: dict[str, Any] = json.loads(self._exactly(*_LENGTH.unpack(self._exactly(_LENGTH.size))))
        names = about.pop("contents")
        return about, {name: self._exactly(*_LENGTH.unpack(self._exactly(_LENGTH.size))) for name in names}

    def close(self) -> None:
        """Hang up."""
        self._line.close()

    def _frame(self, content: bytes) -> None:
        try:
            self._line.settimeout(None)
            self._line.sendall(_LENGTH.pack(len(content)))
            self._line.sendall(content)
        except OSError as error:
            raise Closed(str(error)) from None

    def _exactly(self, count: int) -> bytes:
        content = bytearray(count)
        view = memoryview(content)
        while view:
            try:
                received = self._line.recv_into(view, min(len(view), 1 << 20))
            except TimeoutError:
                raise
            except OSError as error:
                raise Closed(str(error)) from None
            if not received:
                raise Closed("the other end hung up")
            view = view[received:]
        return bytes(content)
