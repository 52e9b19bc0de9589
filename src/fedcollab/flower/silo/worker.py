"""A silo's worker: the process that opens messages and works on them, started for the first and used for every one.

The silo's other process (`supernode.py`) holds the connection and the key to it, and never looks into a message; this
one has no connection. It is started by a message and ended when none has come for long, since it is what takes memory:
PyTorch alone 195 MB. What reads tables, and what installs apps of others, is imported where it is first used.

Before every message the run's app is checked (`pin`). fedcollab's own app holds no code, so nothing is installed for
it: what is imported here serves it. Any other app that the administrator allows runs in a child of its own, forked for
the one message and gone after it, installed into a folder that is removed again.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from fedcollab.errors import InputError
from fedcollab.flower.channel import Channel, ChannelClosed
from fedcollab.flower.silo import pin
from fedcollab.flower.silo.apps import import_installer, install_app
from fedcollab.flower.silo.client_app import app as own_app
from fedcollab.flower.silo.messages import pack_error, pack_message
from fedcollab.flower.silo.received import open_message


def main() -> None:
    """Work for the process at the other end of the connection whose descriptor is given."""
    serve(Channel(Connection(int(sys.argv[1]))))


def serve(channel: Channel) -> None:
    """Answer messages until the other end closes the connection, or the process that started this one has ended.

    Parameters
    ----------
    channel : Channel
        The connection to the silo's other process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the other process, which ends this one
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _end_with_parent()
    try:
        while True:
            header, contents = channel.receive()
            _answer(channel, str(header["name"]), contents)
    except ChannelClosed:
        pass


def _answer(channel: Channel, name: str, contents: dict[str, bytes]) -> None:
    """Work on one message and send the answer, here or, if it is another app's, in a child."""
    try:
        if pin.check_received_app(contents["fab"]):
            channel.send({}, _work(lambda: own_app, name, contents))
        else:
            _answer_in_child(channel, name, contents)
    except (InputError, OSError) as error:  # it may not run here, or there is no room for it
        if isinstance(error, ChannelClosed):
            raise
        channel.send({}, pack_error(error, contents["message"]))


def _answer_in_child(channel: Channel, name: str, contents: dict[str, bytes]) -> None:
    """Have a child work on a message and send the answer; send an error in its place if it ends without."""
    import_installer()
    sys.stdout.flush()
    with tempfile.TemporaryDirectory(prefix="fedcollab-app-") as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of threads; the one here only waits
            child = os.fork()
        if child == 0:
            _answer_and_leave(channel, name, contents, Path(folder))
        _, status = os.waitpid(child, 0)
    if status:
        channel.send({}, pack_error(RuntimeError("the app's process ended"), contents["message"]))


def _answer_and_leave(channel: Channel, name: str, contents: dict[str, bytes], folder: Path) -> NoReturn:
    """In the child: install the app, work on its message, send the answer, and end without returning."""
    code = 1
    try:
        _end_with_parent()
        channel.send({}, _work(lambda: install_app(contents["fab"], folder), name, contents))
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _work(load: Callable[[], Callable[..., object]], name: str, contents: dict[str, bytes]) -> dict[str, bytes]:
    """Have a ClientApp answer a message; whatever goes wrong is the answer, and in full in the silo's log."""
    try:
        message, context = open_message(contents, name)
        return pack_message(load()(message, context), context)  # type: ignore[arg-type]
    except (Exception, SystemExit) as error:
        traceback.print_exception(error)
        return pack_error(error, contents["message"])


def _end_with_parent() -> None:
    """End this process when the one that started it has ended, whatever it is working on."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent").start()


if __name__ == "__main__":
    main()
