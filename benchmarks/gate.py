"""A federation whose gate is attacked by an outsider without a key: do the silos keep their rounds?

    python benchmarks/gate.py [--silos 4] [--rounds 4] [--attack "half requests"]

Silos on this machine over the real Flower runtime (TLS, admitted keys). A few rounds are trained in peace, and then
during each attack. The attacks come from a process of its own and another address of the loopback network (127.0.0.2),
are bounded, and never leave the machine:

    half requests      250 connections over TLS, each with half a body; new ones for those that are cut off
    no handshake       250 connections that send three bytes of TLS and no more; new ones for those that are cut off
    slow readers       250 connections over TLS that ask all the time and never read an answer
    handshakes         as many TLS handshakes as two threads can make
    gigabytes          four connections over TLS that send bodies without end

For each: seconds a round, silos that were absent from one, and the most memory of the gate and of the SuperLink. Exit
code 1 if a silo was absent, a model differs from that in peace, or a process grew by more than 300 MB.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from fedcollab.errors import FedcollabWarning
from fedcollab.federation import federate
from fedcollab.flower import connect_federation
from fedcollab.training import train
from fedcollab.wire.absence import read
from soak import Soak

PATH = "/v1/fleet/pull-messages"
SOURCE = "127.0.0.2"
MOST = 300.0  # megabytes that a process may grow by
CONNECTIONS = 250


def connect(port: int, tls: bool) -> socket.socket:
    """Connect as an outsider: the certificate is not even looked at."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=30, source_address=(SOURCE, 0))
    if not tls:
        return plain
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        return context.wrap_socket(plain)
    except BaseException:
        plain.close()
        raise


def request(length: str) -> bytes:
    return f"POST {PATH} HTTP/1.1\r\nhost: x\r\n{length}\r\n\r\n".encode()


def hold(port: int, *, tls: bool, sent: bytes, again: bytes = b"") -> None:
    """Keep so many connections open, send `sent` on each and then `again` now and then; replace those that end."""
    held: list[socket.socket] = []
    while True:
        with contextlib.suppress(OSError):
            while len(held) < CONNECTIONS:
                opened = connect(port, tls)
                opened.sendall(sent)
                opened.settimeout(0.0)
                held.append(opened)
        time.sleep(1)
        for connection in list(held):
            try:
                if again:
                    connection.send(again)
                elif connection.recv(1, 0 if tls else socket.MSG_PEEK) == b"":
                    raise ConnectionResetError
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                continue
            except OSError:
                connection.close()
                held.remove(connection)


def handshakes(port: int) -> None:
    def work() -> None:
        while True:
            with contextlib.suppress(OSError):
                connect(port, tls=True).close()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()


def gigabytes(port: int) -> None:
    part = b"100000\r\n" + bytes(1 << 20) + b"\r\n"

    def work() -> None:
        while True:
            with contextlib.suppress(OSError), connect(port, tls=True) as connection:
                connection.sendall(request("transfer-encoding: chunked"))
                while True:
                    connection.sendall(part)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()


ATTACKS: dict[str, Callable[[int], None]] = {
    "half requests": lambda port: hold(port, tls=True, sent=request("content-length: 1000") + b"half"),
    "no handshake": lambda port: hold(port, tls=False, sent=b"\x16\x03\x01"),
    "slow readers": lambda port: hold(
        port, tls=True, sent=request("content-length: 0"), again=request("content-length: 0")
    ),
    "handshakes": handshakes,
    "gigabytes": gigabytes,
}


@contextlib.contextmanager
def attacked(name: str | None, port: int) -> Iterator[None]:
    """Attack while the block runs."""
    if name is None:
        yield
        return
    process = subprocess.Popen([sys.executable, __file__, "--attacker", name, str(port)])
    try:
        time.sleep(3)
        yield
    finally:
        process.kill()
        process.wait()


class Watch:
    """The most memory of some processes, in MB, read every half second."""

    def __init__(self, pids: list[int]) -> None:
        self.most, self._over = dict.fromkeys(pids, 0.0), threading.Event()
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        while not self._over.wait(0.5):
            for pid in self.most:
                with contextlib.suppress(psutil.Error):
                    self.most[pid] = max(self.most[pid], psutil.Process(pid).memory_info().rss / 1e6)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def trained(soak: Soak, run: Path, rounds: int) -> tuple[Any, float]:
    """Train all silos together; return the weights and the seconds a round."""
    with connect_federation(soak.federation.folder, deadline=soak.deadline, patience=300, journal=run) as federation:
        prepared = federate(federation, seed=3)
        begun = time.monotonic()
        settings: dict[str, Any] = {"rounds": rounds, "lr": 0.1, "seed": 3, "evaluate_every": None, "stopping": "none"}
        found = train(prepared, "global", "fedavg", "logistic", run_dir=run / "training", **settings)
        return found.models["last"], (time.monotonic() - begun) / rounds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--silos", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--attack", action="append", choices=list(ATTACKS), help="only this one; may be repeated")
    parser.add_argument("--deadline", type=float, default=120.0, help="seconds for one round")
    parser.add_argument("--attacker", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.attacker:
        ATTACKS[given.attacker[0]](int(given.attacker[1]))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # not without ending the silos
    warnings.simplefilter("ignore", FedcollabWarning)
    wrong: list[str] = []
    print("| attack | seconds a round | absences | MB of the gate | MB of the SuperLink |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="gate-") as folder:
        soak = Soak(Path(folder), given.silos, 0, given.deadline)
        try:
            soak.start()
            link, gate = (handle.pid for handle in soak.federation.handles)
            calm: Any = None
            least: dict[int, float] = {}
            for number, name in enumerate([None, *(given.attack or ATTACKS)]):
                run = Path(folder) / f"run{number}"
                with attacked(name, soak.federation.port), Watch([gate, link]) as watch:
                    weights, seconds = trained(soak, run, given.rounds)
                absent = len(read(run)) + len(read(run / "training"))
                shown = f"{seconds:.1f} | {absent} | {watch.most[gate]:.0f} | {watch.most[link]:.0f}"
                print(f"| {name or 'none'} | {shown} |", flush=True)
                calm, least = (weights, watch.most) if name is None else (calm, least)
                grown = [most - least[pid] for pid, most in watch.most.items()]
                wrong += [f"{name}: {absent} absence(s)"] * bool(absent)
                wrong += [f"{name}: another model than in peace"] * (not np.array_equal(weights, calm))
                wrong += [f"{name}: a process grew by {max(grown):.0f} MB"] * (max(grown) > MOST)
        finally:
            soak.stop()
    print("\n".join(wrong) or "every silo answered every round, and the models are those in peace")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
