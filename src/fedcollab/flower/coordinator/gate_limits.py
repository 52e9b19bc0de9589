"""What the gate gives to whoever connects to it, with or without a key: connections, time and memory, all limited.

Connections are counted where they are accepted, before a byte of TLS is exchanged: a handshake that never ends is one
connection of its address (asyncio ends it after 60 seconds), and new connections of one address may come only so fast,
since each costs a signature. Requests are taken in whole before anything is passed on, so that half of one holds no
connection to the SuperLink.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

MIB = 1 << 20
SPARE = 300  # descriptors beside those of the connections: the SuperLink's, the log, the interpreter's
AT_ONCE = 100  # connections that are refused before others get their turn


@dataclass(frozen=True)
class Limits:
    """What one address, or everybody together, may take of the gate.

    Parameters
    ----------
    body : int
        The most bytes of a request. Flower sends arrays in parts of 5 MiB.
    held, held_by_one : int
        The most bytes of requests that are on their way, of all addresses and of one.
    connections, connections_of_one : int
        The most open connections, of all addresses and of one.
    new_of_one : float
        New connections a second of one address; after a pause as many as `connections_of_one` may come at once.
    passed_of_one : int
        The most requests of one address that the SuperLink is working on; further ones wait.
    head : float
        Seconds in which a connection must have sent the head of its next request, or taken some more of an answer.
    part, whole : float
        Seconds until the next part of a body, and until all of it, has come.
    """

    body: int = 64 * MIB
    held: int = 1024 * MIB
    held_by_one: int = 256 * MIB
    connections: int = 1000
    connections_of_one: int = 300
    new_of_one: float = 100.0
    passed_of_one: int = 50
    head: float = 30.0
    part: float = 30.0
    whole: float = 300.0


class Refused(Exception):
    """A request that is not passed on: the HTTP status, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Bodies:
    """The bodies of requests that are on their way, within the limits.

    Parameters
    ----------
    limits : Limits
        The limits.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._held: Counter[str] = Counter()
        self._passing: dict[str, asyncio.Semaphore] = {}
        self._known: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def passing(self, request: Request) -> AsyncIterator[bytes]:
        """Give the body of a request once it is complete and it is its turn to be passed on.

        Parameters
        ----------
        request : Request
            The request.

        Yields
        ------
        bytes
            Its body; it counts as held until the block ends.

        Raises
        ------
        Refused
            If it is too large, too slow, or too much is on its way already.
        """
        address = request.client.host if request.client else ""
        size = 0
        self._known[address] += 1
        turn = self._passing.setdefault(address, asyncio.Semaphore(self.limits.passed_of_one))
        try:
            parts: list[bytes] = []
            async for part in self._parts(request):
                size += len(part)
                self._held[address] += len(part)
                self._check(address, size)
                parts.append(part)
            body = b"".join(parts)
            parts.clear()
            async with turn:
                yield body
        finally:
            _take(self._held, address, size)
            _take(self._known, address, 1)
            if address not in self._known:
                del self._passing[address]

    def _check(self, address: str, size: int) -> None:
        """Raise Refused where one request, one address or all together hold too much."""
        if size > self.limits.body:
            raise Refused(413, f"a request may have at most {self.limits.body} bytes")
        if self._held[address] > self.limits.held_by_one or self._held.total() > self.limits.held:
            raise Refused(503, "too many requests are on their way")

    async def _parts(self, request: Request) -> AsyncIterator[bytes]:
        """Yield the parts of a body as they come; raise Refused where they do not come in time."""
        announced = request.headers.get("content-length", "0")
        if not (announced.isascii() and announced.isdigit()) or int(announced[:20]) > self.limits.body:
            raise Refused(413, f"a request may have at most {self.limits.body} bytes")
        stream = request.stream()
        end = time.monotonic() + self.limits.whole
        while True:
            try:
                yield await asyncio.wait_for(anext(stream), min(self.limits.part, end - time.monotonic()))
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise Refused(408, "the request did not come in time") from None


def _take(counts: Counter[str], address: str, amount: int) -> None:
    """Take from what is counted for an address, and forget the address where nothing is left."""
    counts[address] -= amount
    if counts[address] <= 0:
        del counts[address]


class Listener(socket.socket):
    """A listening socket that cuts off at once the connections that are too many, or come too fast.

    Parameters
    ----------
    host, port : str, int
        Where to listen.
    limits : Limits
        The limits.
    """

    def __init__(self, host: str, port: int, limits: Limits) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_STREAM)
        self.limits = limits
        self.open: Counter[str] = Counter()
        self._allowed: dict[str, tuple[float, float]] = {}  # by address: connections it may open now, as of when
        self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.bind((host, port))
        self.setblocking(False)

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection that is within the limits.

        Returns
        -------
        tuple
            The connection, and the address that it comes from.

        Raises
        ------
        BlockingIOError
            If there is none.
        """
        for _ in range(AT_ONCE):
            plain, address = super().accept()
            if self._admit(address[0]):
                return Connection(plain, address[0], self.open), address
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, no farewell
            plain.close()
        raise BlockingIOError

    def _admit(self, address: str) -> bool:
        """Return whether one more connection of an address is within the limits."""
        now, most = time.monotonic(), float(self.limits.connections_of_one)
        if len(self._allowed) > 10_000:  # those that have not come for long may open as many as anybody
            still = (each for each in self._allowed.items() if (now - each[1][1]) * self.limits.new_of_one < most)
            self._allowed = dict(still)
        left, since = self._allowed.get(address, (most, now))
        left = min(most, left + (now - since) * self.limits.new_of_one)
        admitted = (
            left >= 1 and self.open[address] < self.limits.connections_of_one
        ) and self.open.total() < self.limits.connections
        self._allowed[address] = (left - admitted, now)
        if not self.open[address]:
            del self.open[address]
        return admitted


class Connection(socket.socket):
    """An accepted connection, counted for its address until it is closed."""

    def __init__(self, plain: socket.socket, address: str, counts: Counter[str]) -> None:
        super().__init__(plain.family, plain.type, plain.proto, fileno=plain.detach())
        self._address, self._counts = address, counts
        counts[address] += 1

    def close(self) -> None:
        """Close it; its place is free."""
        if self._address:
            _take(self._counts, self._address, 1)
            self._address = ""
        super().close()


def protocol(limits: Limits) -> type[H11Protocol]:
    """Return the protocol of connections on which something must move; those that are silent are cut off.

    Parameters
    ----------
    limits : Limits
        The limits.
    """

    class Limited(H11Protocol):
        """A connection that is cut off where nothing moves on it for too long."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._since, self._left = self.loop.time(), 0
            self._timer = self.loop.call_later(limits.head / 4, self._look)

        def connection_lost(self, exc: Exception | None) -> None:
            self._timer.cancel()
            super().connection_lost(exc)

        def on_response_complete(self) -> None:
            self._since = self.loop.time()
            super().on_response_complete()

        def _look(self) -> None:
            """Cut the connection off where no request is being answered and nothing has moved for too long."""
            now, left = self.loop.time(), self.transport.get_write_buffer_size()
            busy = self.cycle is not None and not self.cycle.response_complete
            if busy or left < self._left:
                self._since = now
            self._left = left
            if now - self._since > limits.head:
                self.transport.abort()
            else:
                self._timer = self.loop.call_later(limits.head / 4, self._look)

    return Limited


def options(limits: Limits) -> dict[str, Any]:
    """Return the settings of uvicorn with which the limits hold.

    The event loop is Python's own, which accepts connections by `Listener.accept`; there are no web sockets, whose
    protocol would have none of the limits, and no header may say where a request comes from.

    Parameters
    ----------
    limits : Limits
        The limits.

    Returns
    -------
    dict
        Arguments of `uvicorn.Config`.
    """
    return {"http": protocol(limits), "loop": "asyncio", "ws": "none", "proxy_headers": False}


def allow_descriptors(limits: Limits) -> None:
    """Have the system allow as many open descriptors as the connections need, where it allows that.

    Parameters
    ----------
    limits : Limits
        The limits.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + SPARE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
