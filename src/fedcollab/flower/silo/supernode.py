"""A silo's process: it holds the connection to the coordinator, and hands every message to its worker and back.

Two processes in all: this one, which never looks into a message, and the worker (`worker.py`), which has no connection.
Both come of one that has imported everything, so that they share its memory. A worker that dies is started again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path

from fedcollab.errors import InputError
from fedcollab.flower.channel import Channel, ChannelClosed
from fedcollab.flower.keys import private_files
from fedcollab.flower.silo import worker
from fedcollab.flower.silo.config import SiloConfig
from fedcollab.flower.silo.node import Node

WORKER = "fedcollab.flower.silo.worker"
GRACE = 3.0  # seconds between asking the worker to end and ending it


class Worker:
    """The worker, from the side of the process that it works for."""

    def __init__(self) -> None:
        worker.preload()
        self._channel, there = _pair()
        self._program: subprocess.Popen[bytes] | None = None  # once it was started again
        self._pid = os.fork()
        if self._pid == 0:
            code = 1
            try:
                self._channel.close()
                worker.serve(Channel(Connection(there.detach())))
                code = 0
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        there.close()

    def ask(self, header: Mapping[str, str], contents: Mapping[str, bytes]) -> dict[str, bytes]:
        """Have the worker answer a message.

        Parameters
        ----------
        header, contents : mapping
            The silo's name, and the message as it travels.

        Returns
        -------
        dict
            The answer as it travels.

        Raises
        ------
        ChannelClosed
            If the worker has died over it; another one was started.
        """
        try:
            self._channel.send(header, contents)
            return self._channel.receive()[1]
        except ChannelClosed:
            self.stop()
            self._channel, there = _pair()
            line = [sys.executable, "-m", WORKER, str(there.fileno())]  # threads run here by now: no fork
            self._program = subprocess.Popen(line, stdin=subprocess.DEVNULL, pass_fds=[there.fileno()])
            self._pid = self._program.pid
            there.close()
            raise

    def stop(self) -> None:
        """Ask the worker to end, kill it if it has not ended after `GRACE` seconds, and close the connection to it."""
        self._channel.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(OSError):
                os.kill(self._pid, number)
            end = time.monotonic() + GRACE
            while time.monotonic() < end:
                if self._gone():
                    return
                time.sleep(0.02)

    def _gone(self) -> bool:
        """Return whether the worker has ended, and reap it."""
        if self._program is not None:
            return self._program.poll() is not None
        try:
            return os.waitpid(self._pid, os.WNOHANG)[0] != 0
        except ChildProcessError:
            return True


def _pair() -> tuple[Channel, socket.socket]:
    """Return the two ends of a connection within this machine: it has no address that anybody else could use."""
    here, there = socket.socketpair()
    return Channel(Connection(here.detach())), there


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
    except InputError as error:
        print(f"fedcollab: {error}", file=sys.stderr, flush=True)
        sys.exit(1)
    finally:
        working.stop()


if __name__ == "__main__":
    main()
