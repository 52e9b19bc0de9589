"""Flower's SuperNode with shorter naps: it asks for messages every half second instead of every three.

In flwr 1.41 the pauses are numbers in the code, and most of what a round costs. Its module's `time` is replaced by one
whose naps are a sixth; if a later Flower has them elsewhere, this does nothing.

A silo that was killed (SIGKILL, power) and is started again at once is refused by the SuperLink, which takes it to be
there still until it has missed its heartbeats (about 42 s), and Flower's SuperNode then ends. This one asks again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from importlib import import_module, metadata
from types import SimpleNamespace
from typing import Any

SHORTER = 6.0
REFUSED = 412  # HTTP: the SuperLink takes this silo to be connected
AGAIN, LONGEST = 3.0, 180.0  # seconds between two tries to connect, and of all tries


def main() -> None:
    """Become the program `flower-supernode`."""
    (entry,) = (each for each in metadata.entry_points(group="console_scripts") if each.name == "flower-supernode")
    program = entry.load()
    with contextlib.suppress(ImportError):
        loop: Any = import_module("flwr.supernode.start_client_internal")
        if getattr(loop, "time", None) is time:
            loop.time = SimpleNamespace(**{**vars(time), "sleep": lambda seconds: time.sleep(seconds / SHORTER)})
    with contextlib.suppress(ImportError, AttributeError):
        fleet: Any = import_module("flwr.supernode.fleet_http_client")
        fleet.FleetHttpClient.ActivateNode = patient(fleet.FleetHttpClient.ActivateNode)
    program()


def patient(activate: Callable[..., Any]) -> Callable[..., Any]:
    """`activate`, tried again while the SuperLink takes this silo to be connected already."""

    def activated(*arguments: Any) -> Any:
        end = time.monotonic() + LONGEST
        while True:
            try:
                return activate(*arguments)
            except Exception as error:
                status = getattr(getattr(error, "response", None), "status_code", None)
                if status != REFUSED or time.monotonic() > end:
                    raise
            time.sleep(AGAIN)

    return activated


if __name__ == "__main__":
    main()
