"""Outsiders without a key at the gate of a real federation: the silos keep their rounds (see also tests/flower).

This file comes before test_federation.py, whose last test stops the federation.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator

import numpy as np
import psutil

from fedcollab.federation import federate
from fedcollab.flower import FederationFolder, connect_federation
from fedcollab.training import train
from fedcollab.wire import Wire

from .conftest import Running

COUNT = 130  # of each kind; the gate used to have room for 100
STRANGER = "127.0.0.2"  # the silos of this test come from 127.0.0.1


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(STRANGER, 0))


@contextlib.contextmanager
def outsiders(port: int) -> Iterator[None]:
    """Half a handshake, half a request, and a body that is too large, many times each."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    head = "POST /v1/fleet/pull-messages HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\nhalf"
    with contextlib.ExitStack() as held:
        for _ in range(COUNT):
            held.enter_context(connect(port)).sendall(b"\x16\x03\x01")
        for length in (*[1000] * COUNT, 10**9, 10**9):
            secure = held.enter_context(context.wrap_socket(held.enter_context(connect(port))))
            secure.sendall(head.format(length).encode())
        assert b" 413 " in secure.recv(100)
        yield


def test_silos_keep_their_rounds_while_outsiders_hold_connections(running: Running) -> None:
    federation = FederationFolder.read(running.folder)
    settings = {"rounds": 2, "lr": 0.1, "seed": 3, "stopping": "none"}
    here = federate(Wire(running.clients, keys=running.keys()), seed=3)
    calm = train(here, "global", "fedavg", "logistic", **settings)
    link, gate = (psutil.Process(handle.pid) for handle in federation.handles)
    before = {process: process.memory_info().rss for process in (link, gate)}
    with outsiders(federation.port), connect_federation(running.folder) as flower:
        found = train(federate(flower, seed=3), "global", "fedavg", "logistic", **settings)
    assert found.failures == []
    assert not np.isnan(found.accuracy).any()
    np.testing.assert_allclose(found.models["last"], calm.models["last"], rtol=0, atol=1e-5)
    for process, size in before.items():
        assert process.memory_info().rss - size < 200e6
