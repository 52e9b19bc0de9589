"""The coordinator's gate: silos reach Flower's Fleet API through it, and nothing else of Flower.

A SuperLink serves everything on one port: what SuperNodes need, and what starts runs and admits nodes. Without account
management, which is not part of open Flower, whoever reaches that port may run code at every silo and admit keys of
their own. So the SuperLink listens on this machine only, and this process listens for the silos, with the coordinator's
certificate, and passes on `/v1/fleet/...` alone.

    python -m fedcollab.flower.coordinator.gate '{"host": ..., "port": ..., "inner": ..., "keys": FOLDER or null}'
"""

from __future__ import annotations

import json
import re
import ssl
import sys
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

OPEN = re.compile(r"/v1/fleet/[a-z-]+")
HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "proxy-authorization", "host"}
TIMEOUT = 120.0


def build(inner: int, certificate: Path | None) -> Starlette:
    """Return the web application that passes on what silos may ask for and refuses the rest.

    Parameters
    ----------
    inner : int
        The port of this machine on which the SuperLink listens.
    certificate : Path or None
        The federation's certificate authority; None for a SuperLink without TLS.

    Returns
    -------
    Starlette
        The application.
    """
    trust = True if certificate is None else ssl.create_default_context(cafile=str(certificate))
    scheme = "http" if certificate is None else "https"
    client = httpx.AsyncClient(base_url=f"{scheme}://127.0.0.1:{inner}", verify=trust, timeout=TIMEOUT, trust_env=False)

    async def forward(request: Request) -> Response:
        if not OPEN.fullmatch(request.url.path):
            return PlainTextResponse("only Flower's Fleet API is served here", 404)
        headers = [(key, value) for key, value in request.headers.items() if key not in HOP]
        asked = client.build_request("POST", request.url.path, headers=headers, content=request.stream())
        try:
            answer = await client.send(asked, stream=True)
        except httpx.TransportError:
            return PlainTextResponse("the SuperLink does not answer", 502)
        kept = {key: value for key, value in answer.headers.items() if key not in HOP}
        return StreamingResponse(
            answer.aiter_raw(), answer.status_code, headers=kept, background=BackgroundTask(answer.aclose)
        )

    return Starlette(routes=[Route("/{path:path}", forward, methods=["POST"])])


def main() -> None:
    """Listen for silos until the process is ended."""
    asked = json.loads(sys.argv[1])
    keys = None if asked["keys"] is None else Path(asked["keys"])
    options: dict[str, Any] = {"log_level": "warning", "access_log": False, "server_header": False}
    if keys is not None:
        options |= {"ssl_certfile": str(keys / "server.crt"), "ssl_keyfile": str(keys / "server.key")}
    app = build(asked["inner"], None if keys is None else keys / "ca.crt")
    uvicorn.run(app, host=asked["host"], port=asked["port"], **options)


if __name__ == "__main__":
    main()
