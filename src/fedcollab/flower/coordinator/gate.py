"""The coordinator's gate: silos reach Flower's Fleet API through it, and nothing else of Flower.

A SuperLink serves everything on one port: what SuperNodes need, and what starts runs and admits nodes. Without account
management, which is not part of open Flower, whoever reaches that port may run code at every silo and admit keys of
their own. So the SuperLink listens on this machine only, and this process listens for the silos, with the coordinator's
certificate, and passes on `/v1/fleet/...` alone.

Whoever reaches the gate may send anything, with or without a key. So a request is passed on once it is there as a
whole, and an answer is taken from the SuperLink at once: half a request, or a reader that does not read, holds one
connection here for some seconds, and nothing of the SuperLink. Bodies, connections of one address and the time that
each part takes have limits (`gate_limits.py`).

    python -m fedcollab.flower.coordinator.gate '{"host": ..., "port": ..., "inner": ..., "keys": FOLDER or null}'
"""

from __future__ import annotations

import contextlib
import json
import re
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from fedcollab.flower.coordinator import gate_limits
from fedcollab.flower.coordinator.gate_limits import Bodies, Limits, Listener, Refused

OPEN = re.compile(r"/v1/fleet/[a-z-]+")
HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "proxy-authorization", "host"}
TIMEOUT = 120.0


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
            async with (
                bodies.passing(request) as content,
                client.stream("POST", request.url.path, headers=headers, content=content) as answer,
            ):
                taken = b"".join([part async for part in answer.aiter_raw()])
        except Refused as refused:
            return PlainTextResponse(str(refused), refused.status, headers={"connection": "close"})
        except ClientDisconnect:
            return PlainTextResponse("the request was not sent to its end", 400)
        except httpx.TransportError:
            return PlainTextResponse("the SuperLink does not answer", 502)
        kept = {key: value for key, value in answer.headers.items() if key not in HOP}
        return Response(taken, answer.status_code, headers=kept)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with client:
            yield

    return Starlette(routes=[Route("/{path:path}", forward, methods=["POST"])], lifespan=lifespan)


def main() -> None:
    """Listen for silos until the process is ended."""
    asked = json.loads(sys.argv[1])
    keys = None if asked["keys"] is None else Path(asked["keys"])
    options: dict[str, Any] = {"log_level": "warning", "access_log": False, "server_header": False}
    if keys is not None:
        options |= {"ssl_certfile": str(keys / "server.crt"), "ssl_keyfile": str(keys / "server.key")}
    limits = Limits()
    app = build(asked["inner"], None if keys is None else keys / "ca.crt", limits)
    gate_limits.allow_descriptors(limits)
    config = uvicorn.Config(app, **options, **gate_limits.options(limits))
    uvicorn.Server(config).run(sockets=[Listener(asked["host"], asked["port"], limits)])


if __name__ == "__main__":
    main()
