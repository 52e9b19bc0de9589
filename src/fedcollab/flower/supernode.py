"""Flower's SuperNode with shorter naps: it asks for messages every half second instead of every three.

In flwr 1.41 the pauses are numbers in the code, and most of what a round costs. Its module's `time` is replaced by one
whose naps are a sixth; if a later Flower has them elsewhere, this does nothing.

A silo that was killed (SIGKILL, power) and is started again at once is refused by the SuperLink, which takes it to be
there still until it has missed its heartbeats (about 42 s), and Flower's SuperNode then ends. This one says so and asks
again; a silo that was never admitted gets the same answer from the SuperLink, and is refused until it gives up.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from importlib import import_module, metadata
from types import SimpleNamespace
from typing import Any

SHORTER = 6.0
REFUSED = 412  # HTTP: the SuperLink does not know this silo, or takes it to be connected
AGAIN, LONGEST = 3.0, 180.0  # seconds between two tries to connect, and of all tries
REASON = (
    "The coordinator refuses this silo: its key is not registered there (`fedcollab federation admit`), or it was cut "
    f"off a moment ago and is taken to be still connected. Asking again for {LONGEST:.0f} s."
)


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
    """`activate`, tried again while the SuperLink refuses this silo."""

    def activated(*arguments: Any) -> Any:
        end, said = time.monotonic() + LONGEST, False
        while True:
            try:
                return activate(*arguments)
            except Exception as error:
                status = getattr(getattr(error, "response", None), "status_code", None)
                if status != REFUSED or time.monotonic() > end:
                    raise
            if not said:
                print(REASON, file=sys.stderr, flush=True)
                said = True
            time.sleep(AGAIN)

    return activated


if __name__ == "__main__":
    main()
