"""A silo that misbehaves when told to: `fedcollab silo start`, but what it answers passes `disturb` on its way out.

`faults.json` beside silo.toml lists [action, round or null, fault]; it is read for every message.

    hang       stay silent, as a silo that computes for long; go on when the file no longer says so
    garbage    bytes that are no message
    nan        the first array of floats, all NaN
    shape      the same with an axis more

A message that meets a fault leaves a file `met-ACTION-ROUND-FAULT`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedcollab.flower.silo import starting, supernode, worker
from fedcollab.flower.silo.config import CONFIG
from fedcollab.silo.guard import Guard, Served
from fedcollab.wire.message import pack, unpack

serve = Guard.serve
FILE = "faults.json"


def main() -> None:
    """The silo's process, whose worker is this file again: it gets the number of a descriptor."""
    if sys.argv[1].isdecimal():
        work()
        return
    line, env = starting.silo_command(Path(sys.argv[1]).absolute())
    os.environ.update(env)
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    supernode.WORKER = Path(__file__).stem
    os.umask(0o077)
    sys.argv = line[2:]
    supernode.main()


def work() -> None:
    """The worker, with the guard that misbehaves."""
    folder = Path(os.environ[CONFIG]).parent

    def disturbed(guard: Guard, action: str, content: bytes, *rest: Any, **more: Any) -> Served:
        return disturb(folder, action, content, lambda: serve(guard, action, content, *rest, **more))

    Guard.serve = disturbed  # type: ignore[method-assign]
    worker.main()


def disturb(folder: Path, action: str, content: bytes, answer: Any) -> Served:
    number = unpack(content).get("round")
    fault = planned(folder, action, number)
    if fault is not None:
        (folder / f"met-{action}-{number}-{fault}").touch()
    while fault == "hang" and planned(folder, action, number) == "hang":
        time.sleep(0.2)
    served: Served = answer()
    if fault == "garbage":
        return replace(served, content=b"\x00\xff not a message")
    if fault in ("nan", "shape"):
        message = unpack(served.content)
        key = next(k for k, v in message.items() if isinstance(v, np.ndarray) and v.dtype.kind == "f")
        spoilt = np.full_like(message[key], np.nan) if fault == "nan" else message[key][..., None]
        return replace(served, content=pack({**message, key: spoilt}))
    return served


def planned(folder: Path, action: str, number: int | None) -> str | None:
    listed = json.loads((folder / FILE).read_text()) if (folder / FILE).exists() else []
    return next((fault for a, n, fault in listed if (a, n) == (action, number)), None)


if __name__ == "__main__":
    main()
