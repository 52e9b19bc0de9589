"""The gate against outsiders without a key: half requests, silent connections, huge bodies, too many connections."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("flwr")

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fedcollab.flower.coordinator import gate_limits
from fedcollab.flower.coordinator.certificates import make_certificates
from fedcollab.flower.coordinator.gate import build
from fedcollab.flower.coordinator.gate_limits import Limits, Listener

PATH = "/v1/fleet/pull-messages"
SOON = 60.0  # seconds that a busy machine may take


@contextmanager
def served(app: Starlette, limits: Limits, **options: Any) -> Iterator[Listener]:
    """Serve an application on a free port of this machine."""
    place = Listener("127.0.0.1", 0, limits)
    config = uvicorn.Config(app, log_level="critical", **options, **gate_limits.options(limits))
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True)
    thread.start()
    try:
        wait_for(lambda: server.started)
        yield place
    finally:
        server.force_exit = server.should_exit = True
        thread.join(SOON)
        place.close()


def wait_for(what: Any) -> None:
    """Wait until a condition comes true."""
    end = time.monotonic() + SOON
    while not what():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.01)


class Gate:
    """A gate before a server that stands for the SuperLink; `heard` has the lengths of bodies that came through."""

    def __init__(self, listener: Listener, heard: list[int], trust: ssl.SSLContext | None) -> None:
        self.listener, self.heard, self.trust = listener, heard, trust
        self.port: int = listener.getsockname()[1]

    def ask(self, content: bytes, path: str = PATH, source: str = "127.0.0.1") -> httpx.Response:
        """Send a whole request, as a silo does."""
        scheme = "http" if self.trust is None else "https"
        transport = httpx.HTTPTransport(verify=self.trust or True, local_address=source)
        with httpx.Client(transport=transport, timeout=SOON) as client:
            return client.post(f"{scheme}://127.0.0.1:{self.port}{path}", content=content)

    def half(self, sent: bytes, source: str = "127.0.0.1") -> socket.socket:
        """Open a connection that sends only this, without TLS."""
        connection = socket.socket()
        connection.settimeout(SOON)
        connection.bind((source, 0))
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):  # it may be cut off already
            connection.connect(("127.0.0.1", self.port))
            connection.sendall(sent)
        return connection


@contextmanager
def gate(limits: Limits, keys: Path | None = None) -> Iterator[Gate]:
    heard: list[int] = []

    async def superlink(request: Request) -> Response:
        body = await request.body()
        heard.append(len(body))
        return Response(body[::-1], headers={"x-kept": "yes"})

    app = Starlette(routes=[Route("/{path:path}", superlink, methods=["POST"])])
    files = {} if keys is None else {"ssl_certfile": str(keys / "server.crt"), "ssl_keyfile": str(keys / "server.key")}
    trust = None if keys is None else ssl.create_default_context(cafile=str(keys / "ca.crt"))
    with served(app, Limits()) as inner, served(build(inner.getsockname()[1], None, limits), limits, **files) as outer:
        yield Gate(outer, heard, trust)


HALF_BODY = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nonly this".encode()
HALF_HEAD = f"POST {PATH} HTTP/1.1\r\nhost".encode()


def closed(connection: socket.socket) -> bytes:
    """Read until the other side closes; return what came."""
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except TimeoutError:
        raise AssertionError("the connection is still open") from None
    except OSError:  # reset, or cut off before it was made
        pass
    finally:
        connection.close()
    return found


def status(connection: socket.socket) -> bytes:
    """Return the status of the answer that comes before the other side closes."""
    return closed(connection).split(b" ")[1]


def test_what_silos_send_passes_whole() -> None:
    with gate(Limits()) as found:
        answer = found.ask(b"abc" * 1_000_000)
        assert answer.content == (b"abc" * 1_000_000)[::-1]
        assert answer.headers["x-kept"] == "yes"
        assert found.ask(b"x", path="/v1/control/start-run").status_code == 404
        assert found.heard == [3_000_000]


def test_half_sent_requests_hold_nothing_of_the_superlink() -> None:
    """150 half-sent requests, more than the pool of connections to the SuperLink has: silos are served meanwhile."""
    with gate(Limits(part=600, head=600)) as found:
        held = [found.half(HALF_BODY) for _ in range(150)]
        wait_for(lambda: found.listener.open.total() == 150)
        for _ in range(5):
            assert found.ask(b"round").content == b"dnuor"
        assert found.heard == [5] * 5
        for connection in held:
            connection.close()
        wait_for(lambda: not found.listener.open)


def test_half_requests_and_silent_connections_are_cut_off() -> None:
    with gate(Limits(part=0.5, head=0.5)) as found:
        body, head, silent = found.half(HALF_BODY), found.half(HALF_HEAD), found.half(b"")
        assert status(body) == b"408"
        assert closed(head) == closed(silent) == b""
        assert found.heard == []


def test_a_body_that_comes_in_drops_is_cut_off_in_the_end() -> None:
    with gate(Limits(whole=1.0)) as found:
        slow = found.half(HALF_BODY)
        begun = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - begun < SOON:
                slow.sendall(b"x")
                slow.settimeout(0.1)
                with contextlib.suppress(TimeoutError):
                    assert slow.recv(12) == b"HTTP/1.1 408"
                    break
        assert time.monotonic() - begun < SOON
        slow.close()
        assert found.heard == []


def test_a_reader_that_does_not_read_is_cut_off() -> None:
    """Its answer was taken from the SuperLink at once; what it did not take itself is thrown away."""
    with gate(Limits(head=0.5)) as found:
        size = 30_000_000
        head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n\r\n".encode()
        slow = found.half(head + bytes(size))
        wait_for(lambda: found.heard == [size])
        wait_for(lambda: not found.listener.open)
        assert len(closed(slow)) < size


def test_a_body_of_a_gigabyte_never_reaches_the_superlink() -> None:
    with gate(Limits(body=10_000)) as found:
        announced = found.half(f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000\r\n\r\n".encode())
        assert status(announced) == b"413"
        longer = found.half(f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {'9' * 30}\r\n\r\n".encode())
        assert status(longer) in (b"413", b"400")
        chunked = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        assert status(found.half(chunked + b"4e20\r\n" + b"x" * 20_000 + b"\r\n")) == b"413"
        assert found.heard == []


def test_what_one_address_may_hold() -> None:
    with gate(Limits(held_by_one=5000, part=600)) as found:
        head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: 9000\r\n\r\n".encode()
        held = [found.half(head + b"x" * 2600) for _ in range(2)]
        (refused, *_), _, _ = select.select(held, [], [], SOON)  # whichever was taken in last is one too many
        assert refused.recv(12) == b"HTTP/1.1 503"
        assert found.ask(b"other", source="127.0.0.2").content == b"rehto"
        for connection in held:
            connection.close()


def test_connections_of_one_address_are_counted() -> None:
    with gate(Limits(connections_of_one=5, head=600, part=600)) as found:
        held = [found.half(HALF_HEAD) for _ in range(5)]
        wait_for(lambda: found.listener.open["127.0.0.1"] == 5)
        assert closed(found.half(HALF_HEAD)) == b""
        assert found.ask(b"x", source="127.0.0.2").status_code == 200
        for connection in held:
            connection.close()
        wait_for(lambda: not found.listener.open)
        wait_for(lambda: _served(found))  # as fast as new ones may come
        assert found.heard == [1, 1]


def _served(found: Gate) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return found.ask(b"x").status_code == 200
    return False


def test_connections_of_all_together_are_counted() -> None:
    with gate(Limits(connections=4, head=600)) as found:
        held = [found.half(HALF_HEAD, source=f"127.0.0.{number}") for number in (3, 4, 5, 6)]
        wait_for(lambda: found.listener.open.total() == 4)
        assert closed(found.half(HALF_HEAD)) == b""
        for connection in held:
            connection.close()


def test_a_flood_of_connections_of_one_address_is_slowed_down() -> None:
    """At most 10 and then one a second: of 50 that come at once few get in; another address is served."""
    with gate(Limits(connections_of_one=10, new_of_one=1.0)) as found:
        begun = time.monotonic()
        answers = [closed(found.half(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")) for _ in range(50)]
        allowed = 10 + (time.monotonic() - begun) + 1
        assert 1 <= sum(bool(answer) for answer in answers) <= allowed
        assert found.ask(b"other", source="127.0.0.2").content == b"rehto"


def test_handshakes_that_never_end_are_connections_too(tmp_path: Path) -> None:
    """With TLS: before the handshake has ended nothing of the web server knows of the connection."""
    make_certificates(tmp_path, "test", "127.0.0.1")
    with gate(Limits(connections_of_one=20), tmp_path) as found:
        held = [found.half(b"\x16\x03\x01", source="127.0.0.2") for _ in range(20)]
        wait_for(lambda: found.listener.open["127.0.0.2"] == 20)
        assert closed(found.half(b"", source="127.0.0.2")) == b""
        assert found.ask(b"round").content == b"dnuor"
        assert found.ask(b"\x00" * 200_000).content == b"\x00" * 200_000
        for connection in held:
            connection.close()
        wait_for(lambda: not found.listener.open)


def test_no_way_around_the_limits_by_web_sockets_or_headers() -> None:
    with gate(Limits(head=0.5, connections_of_one=5)) as found:
        upgrade = (
            b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
        )
        assert status(found.half(upgrade + b"sec-websocket-key: x3JJHMbDL1EzLkh9GBhXDw==\r\n\r\n")) in (b"404", b"405")
        claimed = HALF_BODY.replace(b"host: x", b"x-forwarded-for: 10.0.0.9\r\nhost: x")
        held = [found.half(claimed) for _ in range(5)]
        wait_for(lambda: found.listener.open["127.0.0.1"] >= 5)
        assert closed(found.half(claimed)) == b""
        for connection in held:
            connection.close()
