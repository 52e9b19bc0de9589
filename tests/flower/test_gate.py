"""The gate against outsiders without a key: half requests, silent connections, huge bodies, too many connections."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fedcollab.flower.coordinator.gate import Limits, build, limited

PATH = "/v1/fleet/pull-messages"


@contextmanager
def served(app: Starlette, limits: Limits | None = None) -> Iterator[int]:
    """Serve an application on a free port of this machine."""
    place = socket.socket()
    place.bind(("127.0.0.1", 0))
    options = {} if limits is None else {"http": limited(limits)}
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", **options))  # type: ignore[arg-type]
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield place.getsockname()[1]
    finally:
        server.force_exit = server.should_exit = True
        thread.join()
        place.close()


@pytest.fixture
def heard() -> list[int]:
    """The lengths of the bodies that came through."""
    return []


@contextmanager
def gate(heard: list[int], limits: Limits) -> Iterator[int]:
    """A gate before a server that stands for the SuperLink."""

    async def superlink(request: Request) -> Response:
        body = await request.body()
        heard.append(len(body))
        return Response(body[::-1], headers={"x-kept": "yes"})

    inner_app = Starlette(routes=[Route("/{path:path}", superlink, methods=["POST"])])
    with served(inner_app) as inner, served(build(inner, None, limits), limits) as port:
        yield port


def half(port: int, sent: bytes) -> socket.socket:
    """Open a connection that sends only this."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.sendall(sent)
    return connection


HALF_BODY = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nonly this".encode()
HALF_HEAD = f"POST {PATH} HTTP/1.1\r\nhost".encode()


def closed(connection: socket.socket) -> bytes:
    """Read until the other side closes; return what came."""
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    connection.close()
    return found


def test_what_silos_send_passes_whole(heard: list[int]) -> None:
    with gate(heard, Limits()) as port:
        answer = httpx.post(f"http://127.0.0.1:{port}{PATH}", content=b"abc" * 1_000_000, timeout=60)
        assert answer.content == (b"abc" * 1_000_000)[::-1]
        assert answer.headers["x-kept"] == "yes"
        assert httpx.post(f"http://127.0.0.1:{port}/v1/control/start-run", content=b"x", timeout=60).status_code == 404
    assert heard == [3_000_000]


def test_half_sent_requests_hold_nothing_of_the_superlink(heard: list[int]) -> None:
    """150 half-sent requests, more than the pool of connections to the SuperLink has: silos are served meanwhile."""
    with gate(heard, Limits(part=600, head=600)) as port:
        held = [half(port, HALF_BODY) for _ in range(150)]
        for _ in range(5):
            assert httpx.post(f"http://127.0.0.1:{port}{PATH}", content=b"round", timeout=60).content == b"dnuor"
        assert heard == [5] * 5
        for connection in held:
            connection.close()


def test_half_requests_and_silent_connections_are_cut_off(heard: list[int]) -> None:
    with gate(heard, Limits(part=0.5, head=0.5)) as port:
        body, head, silent = half(port, HALF_BODY), half(port, HALF_HEAD), half(port, b"")
        assert b" 408 " in closed(body).splitlines()[0]
        assert closed(head) == b""
        assert closed(silent) == b""
    assert heard == []


def test_a_body_of_a_gigabyte_never_reaches_the_superlink(heard: list[int]) -> None:
    with gate(heard, Limits(body=10_000)) as port:
        announced = half(port, f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000\r\n\r\n".encode())
        assert b" 413 " in closed(announced).splitlines()[0]
        chunked = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        unannounced = half(port, chunked + b"4e20\r\n" + b"x" * 20_000 + b"\r\n")
        assert b" 413 " in closed(unannounced).splitlines()[0]
    assert heard == []


def test_what_one_address_may_hold(heard: list[int]) -> None:
    with gate(heard, Limits(held_by_one=5000, part=600)) as port:
        head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: 9000\r\n\r\n".encode()
        first = half(port, head + b"x" * 4000)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:  # until the first has been taken in
            answer = closed(half(port, head + b"x" * 4500)) if deadline else b""
            if b" 503 " in answer:
                break
        assert b" 503 " in answer
        first.close()
    assert heard == []


def test_connections_of_one_address_are_counted(heard: list[int]) -> None:
    with gate(heard, Limits(connections_of_one=5, head=600, part=600)) as port:
        held = [half(port, HALF_HEAD) for _ in range(5)]
        assert closed(half(port, HALF_HEAD)) == b""
        for connection in held:
            connection.close()
        deadline = time.monotonic() + 60
        while True:  # their places are free again
            try:
                assert httpx.post(f"http://127.0.0.1:{port}{PATH}", content=b"x", timeout=60).status_code == 200
                break
            except httpx.TransportError:
                assert time.monotonic() < deadline
    assert heard == [1]
