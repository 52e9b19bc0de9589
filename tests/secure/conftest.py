"""What the tests of secure aggregation share: members without data, and a server that carries what they say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedcollab.data import ClientData
from fedcollab.secure import member
from fedcollab.secure.server import Group, unpack_mean
from fedcollab.wire.message import Message, pack, unpack
from fedcollab.wire.silo import Silo


def make_silo(name: str, **settings: Any) -> Silo:
    return Silo(ClientData(name, np.zeros((4, 1)), np.array([0, 1, 0, 1])), **settings)


class Circle:
    """A group of members that hold one vector each, and the server between them."""

    def __init__(self, updates: dict[str, np.ndarray], samples: dict[str, int] | None = None, *, dropouts: bool = True,
                 **settings: Any) -> None:  # fmt: skip
        self.updates = updates
        self.samples = samples or dict.fromkeys(updates, 10)
        self.silos = {name: make_silo(name, **settings) for name in sorted(updates)}
        self.group = Group.of(sorted(updates), dropouts=dropouts)
        for name, silo in self.silos.items():
            joined = member.join(silo, self.group.name, self.group.members, self.group.threshold)
            self.group.certificates[name] = joined

    @property
    def size(self) -> int:
        return len(next(iter(self.updates.values())))

    def message(self, name: str, number: int = 1, **changed: Any) -> Message:
        plain = {
            "round": number,
            "training": "t",
            "coalition": self.group.members,
            "total": sum(self.samples.values()),
            "w": np.zeros(self.size, dtype=np.float32),
            **self.group.fields(name),
        }
        return unpack(pack({**plain, **changed}))

    def send(self, name: str, number: int = 1, **changed: Any) -> Message:
        """Have a member mask its update, as `train` does; it replies the same to the same message."""
        message, silo = self.message(name, number, **changed), self.silos[name]
        before = member.again(silo, message)
        if before is not None:
            return before
        reply = member.mask(silo, message, {"w": self.updates[name]}, self.samples[name])
        member.keep_sent(silo, reply)
        return reply

    def reveal(self, name: str, left: Sequence[str], number: int = 1) -> np.ndarray:
        message = {"group": self.group.name, "training": "t", "round": number, "left": list(left)}
        return member.reveal(self.silos[name], {**message, "boxes": self.group.boxes_for(name, sorted(left))})

    def context(self, number: int = 1, **changed: Any) -> bytes:
        return member.context_of(self.message(self.group.members[0], number, **changed))

    def round(self, number: int = 1, gone: Sequence[str] = (), silent: Sequence[str] = ()) -> np.ndarray:
        """Return the mean over those who are left; `gone` send no update, `silent` do not reveal."""
        context = self.context(number)
        replies = {name: self.send(name, number) for name in self.group.members if name not in gone}
        self.group.received(replies)
        left = sorted(replies)
        shares = {}
        if self.group.recovers and len(left) >= self.group.threshold:
            shares = {name: self.reveal(name, left, number) for name in left if name not in silent}
        total = self.group.add_up(context, {name: reply["masked"] for name, reply in replies.items()}, shares)
        share = sum(self.samples[name] for name in left) / sum(self.samples.values())
        return unpack_mean(total, [["w", [self.size]]], share)["w"]


def vectors(names: str, size: int = 40, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0, 0.1, size) for name in names}
