"""The server's side of secure aggregation: it carries certificates and boxes, and adds up what it cannot read.

sum_{u left} q(x_u) = sum_{u left} y_u - sum_{u left} b_u - sum_{u left, d gone} +-m_ud         mod 2^32
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.errors import InputError
from fedcollab.secure import shamir
from fedcollab.secure.member import CHECKS, add_mask, check_words, least_left
from fedcollab.secure.nested import LEAST
from fedcollab.secure.quantise import Integers, to_numbers
from fedcollab.wire.message import Message


@dataclass(eq=False)
class Group:
    """The members of one coalition, and what the server knows of their keys.

    Parameters
    ----------
    members : list of str
        The members, in order of name.
    threshold : int
        How many of them must be left for a sum.
    name : str
        The group's id, drawn anew for every training.
    certificates : dict of str
        Each member's certificate.
    met : list of str
        Members that have answered once, and know the certificates.
    boxes : dict of arrays
        What each member sealed for the others in the last round.
    """

    members: list[str]
    threshold: int
    name: str = field(default_factory=lambda: secrets.token_hex(16))
    certificates: dict[str, str] = field(default_factory=dict)
    met: list[str] = field(default_factory=list)
    boxes: dict[str, NDArray[np.uint8]] = field(default_factory=dict)

    @classmethod
    def of(cls, members: Sequence[str], *, dropouts: bool) -> Group:
        """Return a new group.

        Parameters
        ----------
        members : sequence of str
            The coalition, at least three.
        dropouts : bool
            Whether sums may be formed without some of them.

        Raises
        ------
        InputError
            If there are fewer than three.
        """
        if len(members) < LEAST:
            raise InputError(
                f"the coalition {', '.join(members)} has {len(members)} member(s); secure aggregation needs at least "
                f"{LEAST}, because two members learn each other's update (give `min_size=3` to `solve`)"
            )
        return cls(sorted(members), least_left(len(members)) if dropouts else len(members))

    @property
    def recovers(self) -> bool:
        """Whether sums are formed without members that drop out, which takes one more message a round."""
        return self.threshold < len(self.members)

    def fields(self, member: str) -> Message:
        """Return what a message to a member carries for secure aggregation alone."""
        if member not in self.met:
            return {"group": self.name, "certificates": [self.certificates[name] for name in self.members]}
        boxes = {} if self.recovers or not self.boxes else {"boxes": self.boxes_for(member, self.members)}
        return {"group": self.name, **boxes}

    def boxes_for(self, member: str, senders: Sequence[str]) -> NDArray[np.uint8]:
        """Return what these members sealed for one of them."""
        return np.stack([self.boxes[name][self.members.index(member)] for name in senders])

    def received(self, replies: Mapping[str, Message]) -> None:
        """Note who has answered, and what they sealed for each other."""
        self.met = sorted({*self.met, *replies})
        self.boxes = {name: reply["boxes"] for name, reply in replies.items()}

    def gone(self, left: Sequence[str]) -> list[str]:
        """Return the members that are not left."""
        return [name for name in self.members if name not in left]

    def add_up(
        self,
        context: bytes,
        masked: Mapping[str, Integers],
        shares: Mapping[str, NDArray[np.uint8]],
    ) -> Integers:
        """Return the sum of the members' integers, without masks.

        Parameters
        ----------
        context : bytes
            That of the round (see `member.context_of`).
        masked : mapping of arrays
            What the members that are left have sent.
        shares : mapping of arrays
            What members revealed, at least `threshold` of them; empty where everybody must answer.

        Raises
        ------
        InputError
            If too few are left or have revealed shares, or the masks do not cancel.
        """
        left = sorted(masked)
        if len(left) < self.threshold:
            raise InputError(f"{len(left)} of {len(self.members)} members are left; {self.threshold} must be")
        total: Integers = np.add.reduce([masked[name] for name in left], dtype=np.uint32)
        if self.recovers:
            self._take_away(total, left, shares)
        if not np.array_equal(total[-CHECKS:], check_words(context) * np.uint32(len(left))):
            raise InputError(
                "the masks of the members do not cancel: they were not all sent the same, or one of them did not "
                "follow the protocol (which one cannot be told)"
            )
        return total[:-CHECKS]

    def _take_away(self, total: Integers, left: Sequence[str], shares: Mapping[str, NDArray[np.uint8]]) -> None:
        """Recover the seeds of the masks that do not cancel, and take their streams away, in place."""
        if len(shares) < self.threshold:
            raise InputError(f"{len(shares)} member(s) have revealed shares; {self.threshold} must")
        used = {self.members.index(name) + 1: shares[name] for name in sorted(shares)[: self.threshold]}
        gone = self.gone(left)

        def seed(row: int, column: int) -> int:
            given = {number: shamir.from_bytes(bytes(table[row, column])) for number, table in used.items()}
            return shamir.recover(given, self.threshold)

        for row, name in enumerate(left):
            add_mask(total, seed(row, 0), -1)
            for column, other in enumerate(gone, start=1):
                add_mask(total, seed(row, column), -1 if name < other else 1)

    def to_message(self) -> dict[str, Any]:
        """Return the group as plain values, for a checkpoint."""
        boxes = {name: [bytes(row).hex() for row in box] for name, box in self.boxes.items()}
        plain = {"members": self.members, "threshold": self.threshold, "name": self.name}
        return {**plain, "certificates": self.certificates, "met": self.met, "boxes": boxes}

    @classmethod
    def from_message(cls, plain: Mapping[str, Any]) -> Group:
        """Return a group from what `to_message` returned."""
        boxes = {
            name: np.stack([np.frombuffer(bytes.fromhex(row), dtype=np.uint8) for row in rows])
            for name, rows in plain["boxes"].items()
        }
        return cls(**{**plain, "boxes": boxes})


def unpack_mean(total: Integers, layout: Sequence[Any], share: float) -> dict[str, NDArray[np.float64]]:
    """Return the weighted mean of the members' arrays from the sum of their integers.

    Parameters
    ----------
    total : array
        The sum.
    layout : sequence of (str, shape)
        The arrays in it, in this order.
    share : float
        The share of the coalition's samples that those who are left have.

    Raises
    ------
    InputError
        If the layout does not fit the sum.
    """
    values = to_numbers(total) / share
    arrays, start = {}, 0
    for key, shape in layout:
        end = start + int(np.prod(shape))
        arrays[str(key)] = values[start:end].reshape(shape)
        start = end
    if start != len(values):
        raise InputError(f"the members' updates have {len(values)} numbers; their layout names {start}")
    return arrays
