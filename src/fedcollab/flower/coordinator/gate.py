"""The coordinator's gate: silos reach Flower's Fleet API through it, and nothing else of Flower.

A SuperLink serves everything on one port: what SuperNodes need, and what starts runs and admits nodes. Without account
management, which is not part of open Flower, whoever reaches that port may run code at every silo and admit keys of
their own. So the SuperLink listens on this machine only, and this process listens for the silos, with the coordinator's
certificate, and passes on `/v1/fleet/...` alone.

Whoever reaches the gate may send anything, with or without a key. So a request is passed on once it is there as a
whole, and an answer is taken from the SuperLink at once: half a request, or a reader that does not read, holds one
connection here for some seconds, and nothing of the SuperLink. Bodies, connections of one address and the time that
each part takes have limits (`Limits`); Flower sends arrays in parts of 5 MiB.

    python -m fedcollab.flower.coordinator.gate '{"host": ..., "port": ..., "inner": ..., "keys": FOLDER or null}'
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

OPEN = re.compile(r"/v1/fleet/[a-z-]+")
HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "proxy-authorization", "host"}
TIMEOUT = 120.0
MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """What one address, or everybody together, may take of the gate.

    Parameters
    ----------
    body : int
        The most bytes of a request.
    held, held_by_one : int
        The most bytes of requests that are not complete yet, of all addresses and of one.
    connections, connections_of_one : int
        The most open connections, of all addresses and of one.
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

    async def read(self, request: Request) -> bytes:
        """Return the body of a request once it is complete.

        Raises
        ------
        Refused
            If it is too large, too slow, or too much is on its way already.
        """
        limits, size = self.limits, 0
        parts: list[bytes] = []
        address = request.client.host if request.client else ""
        announced = request.headers.get("content-length", "0")
        if not announced.isdigit() or int(announced) > limits.body:
            raise Refused(413, f"a request may have at most {limits.body} bytes")
        stream = request.stream()
        try:
            async with asyncio.timeout(limits.whole):
                while True:
                    try:
                        part = await asyncio.wait_for(anext(stream), limits.part)
                    except StopAsyncIteration:
                        return b"".join(parts)
                    size += len(part)
                    self._held[address] += len(part)
                    if size > limits.body:
                        raise Refused(413, f"a request may have at most {limits.body} bytes")
                    if self._held[address] > limits.held_by_one or self._held.total() > limits.held:
                        raise Refused(503, "too many requests are on their way")
                    parts.append(part)
        except TimeoutError:
            raise Refused(408, "the request did not come in time") from None
        finally:
            self._held[address] -= size
            if not self._held[address]:
                del self._held[address]


def limited(limits: Limits) -> type[H11Protocol]:
    """Return the protocol of connections that keep the limits; those that do not are cut off.

    Parameters
    ----------
    limits : Limits
        The limits.

    Returns
    -------
    type
        A protocol for uvicorn.
    """
    counts: Counter[str] = Counter()

    class Limited(H11Protocol):
        """A connection that is cut off where it is silent for too long, or one too many."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._address = self.client[0] if self.client else ""
            self._since, self._left = self.loop.time(), 0
            self._timer = self.loop.call_later(limits.head / 4, self._look)
            counts[self._address] += 1
            if counts[self._address] > limits.connections_of_one or counts.total() > limits.connections:
                transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            self._timer.cancel()
            counts[self._address] -= 1
            if not counts[self._address]:
                del counts[self._address]
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


def build(inner: int, certificate: Path | None, limits: Limits | None = None) -> Starlette:
    """Return the web application that passes on what silos may ask for and refuses the rest.

    Parameters
    ----------
    inner : int
        The port of this machine on which the SuperLink listens.
    certificate : Path or None
        The federation's certificate authority; None for a SuperLink without TLS.
    limits : Limits, optional
        What requests may take.

    Returns
    -------
    Starlette
        The application.
    """
    trust = True if certificate is None else ssl.create_default_context(cafile=str(certificate))
    scheme = "http" if certificate is None else "https"
    bodies = Bodies(limits or Limits())
    client = httpx.AsyncClient(base_url=f"{scheme}://127.0.0.1:{inner}", verify=trust, timeout=TIMEOUT, trust_env=False)

    async def forward(request: Request) -> Response:
        if not OPEN.fullmatch(request.url.path):
            return PlainTextResponse("only Flower's Fleet API is served here", 404)
        headers = [(key, value) for key, value in request.headers.items() if key not in HOP]
        try:
            content = await bodies.read(request)
        except Refused as refused:
            return PlainTextResponse(str(refused), refused.status, headers={"connection": "close"})
        try:
            answer = await client.send(
                client.build_request("POST", request.url.path, headers=headers, content=content), stream=True
            )
            taken = b"".join([part async for part in answer.aiter_raw()])
            await answer.aclose()
        except httpx.TransportError:
            return PlainTextResponse("the SuperLink does not answer", 502)
        kept = {key: value for key, value in answer.headers.items() if key not in HOP}
        return Response(taken, answer.status_code, headers=kept)

    return Starlette(routes=[Route("/{path:path}", forward, methods=["POST"])])


def main() -> None:
    """Listen for silos until the process is ended."""
    asked = json.loads(sys.argv[1])
    keys = None if asked["keys"] is None else Path(asked["keys"])
    options: dict[str, Any] = {"log_level": "warning", "access_log": False, "server_header": False}
    if keys is not None:
        options |= {"ssl_certfile": str(keys / "server.crt"), "ssl_keyfile": str(keys / "server.key")}
    limits = Limits()
    app = build(asked["inner"], None if keys is None else keys / "ca.crt", limits)
    uvicorn.run(app, host=asked["host"], port=asked["port"], http=limited(limits), **options)


if __name__ == "__main__":
    main()
