"""A silo's process: it holds the connection to the coordinator, and hands every message to its worker and back.

Two processes in all: this one, which never looks into a message, and the worker (`worker.py`), which has no connection.
The worker is a program of its own, so that nothing of the connection is in its memory, and is started by a message: a
silo that waits is one small process. A worker that dies is started again by the next message.
"""

from __future__ import annotations

import contextlib
import fcntl
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path

from fedcollab.errors import InputError
from fedcollab.flower.channel import Channel, ChannelClosed
from fedcollab.flower.keys import private_files
from fedcollab.flower.silo.config import SiloConfig
from fedcollab.flower.silo.node import Node

WORKER = "fedcollab.flower.silo.worker"
GRACE = 3.0  # seconds between asking the worker to end and ending it


class Worker:
    """The worker, from the side of the process that it works for."""

    def __init__(self) -> None:
        self._channel: Channel | None = None
        self._program: subprocess.Popen[bytes] | None = None

    def ask(self, header: Mapping[str, str], contents: Mapping[str, bytes]) -> dict[str, bytes]:
        """Have the worker answer a message; start it if it does not run.

        Parameters
        ----------
        header, contents : mapping
            The silo's name, and the message as it travels.

        Raises
        ------
        ChannelClosed
            If the worker has died over it; the next message starts another one.
        """
        channel = self._channel or self._start()
        try:
            channel.send(header, contents)
            return channel.receive()[1]
        except ChannelClosed:
            self.stop()
            raise

    def stop(self) -> None:
        """End the worker if it runs: ask it to, and kill it if it has not ended after `GRACE` seconds."""
        if self._channel is None or self._program is None:
            return
        self._channel.close()
        self._program.terminate()
        try:
            self._program.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._program.kill()
            self._program.wait()
        self._channel = self._program = None

    def _start(self) -> Channel:
        """Start the worker; return the connection to it."""
        here, there = socket.socketpair()  # within this machine: it has no address that anybody else could use
        with there:
            line = [sys.executable, "-m", WORKER, str(there.fileno())]
            self._program = subprocess.Popen(line, stdin=subprocess.DEVNULL, pass_fds=[there.fileno()])
        self._channel = Channel(Connection(here.detach()))
        return self._channel


@contextlib.contextmanager
def lock(home: Path) -> Iterator[None]:
    """Hold a silo's folder for the block: a second process with the same key would take the first one's messages.

    Parameters
    ----------
    home : Path
        The folder.

    Raises
    ------
    InputError
        If another process holds it.
    """
    with private_files():
        file = (home / "lock").open("w")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError("this silo runs already: another process holds its state folder") from None
        yield


def main() -> None:
    """Run the silo whose config is given until it is ended; exit code 1 if the coordinator does not let it in."""
    config = SiloConfig.read(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    working = Worker()
    try:
        with lock(config.state / "flwr"):
            Node(config, working).carry()
    except KeyboardInterrupt:
        sys.exit(0)
    except (InputError, OSError) as error:  # also a state folder that is read-only
        print(f"fedcollab: {error}", file=sys.stderr, flush=True)
        sys.exit(1)
    finally:
        working.stop()


if __name__ == "__main__":
    main()
