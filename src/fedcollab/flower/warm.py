"""A starter that stays warm: Flower starts a process for every message; this makes that a fork instead of seconds.

Flower's SuperExec starts the program `flwr-clientapp` for each message, which first imports Flower, fedcollab and
PyTorch. At a silo a small script of that name comes first on the path: it hands its arguments to this process, which
has everything imported and forks. The child runs the very program that would have been started, after `pin` has had a
look at the coordinator's app. If this process is not there, the script starts `pin` itself: slower, with the same
result. No data is held here, and no state.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
from importlib import import_module, metadata
from pathlib import Path
from typing import NoReturn

from fedcollab.flower import pin
from fedcollab.flower.pin import PROGRAM

WANTED = ("fedcollab.flower.client", "fedcollab.training.client", "fedcollab.distances.methods.cross_client")

IMPORT = 120  # seconds after which a script waits no longer for this process to have everything imported

SCRIPT = """\
#!{python} -SE
import json, os, socket, sys
try:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout({wait})
        line.connect({address!r})
        line.sendall(json.dumps(sys.argv[1:]).encode() + b"\\n")
        if line.recv(1) != b"+":
            raise OSError
except OSError:
    os.execv({python!r}, [{python!r}, "-m", {program!r}] + sys.argv[1:])
"""


def write_script(folder: Path, address: str, program: str = pin.__name__) -> Path:
    """The script that stands in for `flwr-clientapp`; its folder, to be first on the path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / PROGRAM
    path.write_text(SCRIPT.format(python=sys.executable, address=address, program=program, wait=IMPORT))
    path.chmod(0o700)
    return folder


def main() -> None:
    """Listen at the address given, for as long as the process that started this one lives."""
    address, parent = sys.argv[1], os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this one will end, and so will this
    Path(address).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.bind(address)
        door.listen(8)
        (entry,) = (each for each in metadata.entry_points(group="console_scripts") if each.name == PROGRAM)
        entry.load()
        for module in WANTED:
            import_module(module)
        gc.freeze()
        while os.getppid() == parent:
            _reap()
            if not select.select([door], [], [], 1.0)[0]:
                continue
            line, _ = door.accept()
            with line:
                line.settimeout(10)
                arguments = _read(line)
                if arguments is None:
                    continue
                try:
                    line.sendall(b"+")
                except OSError:  # whoever asked has given up, and does it itself
                    continue
                if os.fork() == 0:
                    door.close()
                    line.close()
                    _become(entry, arguments)
    Path(address).unlink(missing_ok=True)


def _become(entry: metadata.EntryPoint, arguments: list[str]) -> NoReturn:
    """In the child: run the program and leave."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = [PROGRAM, *arguments]
        pin.stand_guard()
        code = entry.load()() or 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _read(line: socket.socket) -> list[str] | None:
    """The arguments: one line of JSON."""
    content = b""
    try:
        while not content.endswith(b"\n"):
            part = line.recv(1 << 16)
            if not part:
                return None
            content += part
        arguments: list[str] = json.loads(content)
        return arguments
    except (OSError, ValueError):
        return None


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main()
