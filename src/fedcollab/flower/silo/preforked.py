"""A pre-forked worker: Flower starts a process for every message; this makes that a fork instead of seconds.

Flower's SuperExec starts the program `flwr-clientapp` for each message, which first imports Flower, fedcollab and
PyTorch. At a silo a small script of that name comes first on the path: it hands its arguments to this process, which
has everything imported and forks. The child runs the very program that would have been started, with the check of the
coordinator's app (`pin`). If this process is not there, the script starts `pin` itself: slower, with the same result.
No data is held here, and no state.

The script uses a plain socket: importing `multiprocessing.connection` costs as much as all else that it imports.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from fedcollab.flower.compat import CLIENT_PROGRAM, OTHER_PROGRAMS, check_before_install, load_program
from fedcollab.flower.keys import private_files
from fedcollab.flower.silo import pin

#: imported before the first message: the ClientApp, every action, and what reads tables
PRELOADED = ("fedcollab.flower.silo.client_app", "pandas")

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

REFUSAL = """\
#!{python} -SE
import sys
sys.exit("fedcollab: a run that starts {program} was refused; silos run client apps only")
"""


def write_scripts(folder: Path, address: str, program: str = pin.__name__) -> Path:
    """Write the scripts that stand in for the programs that Flower starts at a silo.

    Beside `flwr-clientapp` a coordinator could have a silo start `flwr-agentapp` and others, which run an app's code
    without `pin`; these scripts refuse.

    Parameters
    ----------
    folder : Path
        Where to write; to be first on the path.
    address : str
        The socket of the pre-forked worker.
    program : str
        The module to run if no worker answers there.

    Returns
    -------
    Path
        The folder.
    """
    stand_in = SCRIPT.format(python=sys.executable, address=address, program=program, wait=IMPORT)
    refusals = {name: REFUSAL.format(python=sys.executable, program=name) for name in OTHER_PROGRAMS}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {CLIENT_PROGRAM: stand_in, **refusals}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o700)
    return folder


def main() -> None:
    """Listen at the address given, for as long as the process that started this one lives."""
    address, parent = sys.argv[1], os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this one will end, and so will this
    Path(address).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        with private_files():
            server.bind(address)
        server.listen(8)
        program = load_program(CLIENT_PROGRAM)
        for module in PRELOADED:
            import_module(module)
        gc.freeze()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children that ended are not waited for
        while os.getppid() == parent:
            if not select.select([server], [], [], 1.0)[0]:
                continue
            with server.accept()[0] as connection, suppress(OSError, ValueError):  # a script that has given up
                connection.settimeout(10)
                arguments = json.loads(connection.makefile("rb").readline())
                connection.sendall(b"+")
                if os.fork() == 0:
                    server.close()
                    connection.close()
                    _run(program, arguments)
    Path(address).unlink(missing_ok=True)


def _run(program: Callable[[], Any], arguments: list[str]) -> NoReturn:
    """In the child: run the program, and leave without returning to the worker's code."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = [CLIENT_PROGRAM, *arguments]
        check_before_install(pin.check_received_app)
        code = program() or 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
