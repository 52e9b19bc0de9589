"""A wire runtime whose clients misbehave on purpose: real messages, real bytes, faults put in where they cross."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from fedcollab.data import ClientData
from fedcollab.wire import Wire
from fedcollab.wire.absence import Policy
from fedcollab.wire.message import Message, pack, unpack

#: absent: never reached; lost: acted, but its reply did not arrive; the rest: what came back instead
FAULTS = ("absent", "lost", "garbage", "truncated", "nan", "shape", "dtype", "missing", "extra", "refused", "error")
Plan = Callable[[str, str, int], str | None]  # (action, client, how many calls it has seen) -> a fault, or None


class Faulty(Wire):
    """`plan` says what goes wrong; `asked` lists every (action, client) that was tried."""

    def __init__(self, clients: Iterable[ClientData], plan: Plan, policy: Policy | None = None) -> None:
        super().__init__(clients)
        self.plan, self.asked = plan, []
        self.policy = policy or Policy(retries=0)
        self._calls: dict[str, int] = {}

    def _call(self, action: str, messages: dict[str, Message]) -> dict[str, Message]:
        replies: dict[str, Message] = {}
        for name, message in messages.items():
            self.asked.append((action, name))
            self._calls[name] = self._calls.get(name, 0) + 1
            self._fault = self.plan(action, name, self._calls[name])
            if self._fault == "absent":
                continue
            got = super()._call(action, {name: message})
            if self._fault != "lost":
                replies |= got
        return replies

    def _serve(self, action: str, name: str, content: bytes) -> bytes:
        return spoil(super()._serve(action, name, content), self._fault)


def spoil(reply: bytes, fault: str | None) -> bytes:
    """What arrives instead of a reply."""
    if fault in (None, "absent", "lost"):
        return reply
    if fault == "garbage":
        return b"\x00\xff not a message"
    if fault == "truncated":
        return reply[:-1]
    if fault in ("refused", "error"):
        return pack({fault: "on purpose"})
    message = unpack(reply)
    if fault == "extra":
        return pack({**message, "surprise": 1})
    floats = [key for key, value in message.items() if isinstance(value, np.ndarray) and value.dtype.kind == "f"]
    if fault == "missing" or not floats:
        return pack(dict(list(message.items())[1:])) if message else pack({"surprise": 1})
    key = floats[0]
    value = message[key]
    changed = {
        "nan": np.full_like(value, np.nan),
        "shape": np.zeros((*value.shape, 2), dtype=value.dtype),
        "dtype": value.astype(np.float16),
    }[fault]
    return pack({**message, key: changed})


@pytest.fixture(scope="session")
def faulty() -> type[Faulty]:
    """The runtime that misbehaves."""
    return Faulty
