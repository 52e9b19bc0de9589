"""Run fedcollab where every socket is denied: a command that wants the network ends in an AssertionError.

python tools/no_network.py demo --out runs/demo
"""

from __future__ import annotations

import socket
import sys
from typing import Any


def denied(*arguments: Any, **options: Any) -> Any:
    """Stand in for everything that would reach the network."""
    raise AssertionError(f"fedcollab wanted the network: {arguments}")


def deny() -> None:
    """Deny sockets in this process, and see that they are."""
    for name in ("connect", "connect_ex", "bind", "sendto"):
        setattr(socket.socket, name, denied)
    for name in ("create_connection", "create_server", "getaddrinfo", "gethostbyname"):
        setattr(socket, name, denied)
    try:
        socket.create_connection(("127.0.0.1", 9))
    except AssertionError:
        return
    sys.exit("sockets are not denied")


if __name__ == "__main__":
    deny()
    from fedcollab.cli import main

    main()
