"""Secure aggregation on the server: one group for each coalition, and sums in the place of single updates."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedcollab.errors import FedcollabWarning, InputError, Paused
from fedcollab.federation import Federation
from fedcollab.secure import member
from fedcollab.secure.keys import Certificate
from fedcollab.secure.server import Group, unpack_mean
from fedcollab.training.hooks import Algorithm
from fedcollab.training.secure_client import secure_keys, secure_unmask
from fedcollab.wire.absence import reasons
from fedcollab.wire.message import Message

#: ways of secure aggregation: sums without members that drop out (one more message a round), or everybody must answer
SECURE = ("dropouts", "everyone")


def read_secure(secure_aggregation: bool | str) -> str:
    """Return the way of secure aggregation that was asked for, or an empty text for none.

    Parameters
    ----------
    secure_aggregation : bool or str
        True is "dropouts".

    Raises
    ------
    InputError
        If it is neither a truth value nor one of `SECURE`.
    """
    if isinstance(secure_aggregation, bool):
        return SECURE[0] if secure_aggregation else ""
    if secure_aggregation in ("", "none", *SECURE):
        return "" if secure_aggregation == "none" else secure_aggregation
    raise InputError(
        f"`secure_aggregation` (={secure_aggregation!r}) must be True, False or one of: {', '.join(SECURE)}"
    )


def check_secure(way: str, called: str, algorithm: Algorithm, *, fixed: bool, participation: float) -> None:
    """Check that a training is one that secure aggregation can hide.

    Parameters
    ----------
    way : str
        What `read_secure` returned.
    called : str
        The algorithm's name.
    algorithm : Algorithm
        The algorithm.
    fixed : bool
        Whether the coalitions stay as they are.
    participation : float
        The share of each coalition that takes part in a round.

    Raises
    ------
    InputError
        If it is not, with the reason.
    """
    if not way:
        return
    asked = f"`secure_aggregation` (={way!r})"
    if algorithm.weighted:
        raise InputError(f"{asked} does not go with '{called}': several sums with different weights uncover updates")
    if not algorithm.additive:
        raise InputError(f"{asked} does not go with '{called}': its server needs each client's reply, not their sum")
    if not fixed:
        raise InputError(f"{asked} needs fixed coalitions: a method that groups clients by their updates must see them")
    if participation < 1:
        raise InputError(
            f"{asked} needs `participation` (={participation:g}) to be 1: sums over changing members uncover updates"
        )


@dataclass(eq=False)
class SecureSums:
    """The groups of a training, whose members add up their updates under masks.

    Parameters
    ----------
    federation : Federation
        The clients.
    coalitions : sequence of sequences of str
        The coalitions, at least three members each.
    way : str
        One of `SECURE`.
    groups : dict of Group
        The group of each coalition, once keys are agreed.

    Raises
    ------
    InputError
        If a coalition is too small.
    """

    federation: Federation
    coalitions: Sequence[Sequence[str]]
    way: str
    groups: dict[int, Group] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for coalition in range(len(self.coalitions)):
            self._new(coalition)  # raises for one that is too small, before anything is computed

    def fields(self, names: Sequence[str]) -> dict[str, Message]:
        """Return what messages to these clients carry for secure aggregation; agrees on keys where there are none.

        Raises
        ------
        Paused
            If a member does not answer while keys are agreed.
        """
        of = self._coalition_of(names)
        self._agree(sorted(set(of.values()) - set(self.groups)))
        totals = {
            coalition: sum(self.federation.quantities[name] for name in group.members)
            for coalition, group in self.groups.items()
        }
        return {name: {**self.groups[of[name]].fields(name), "total": totals[of[name]]} for name in names}

    def means(
        self, sent: Mapping[str, Message], answers: Mapping[str, Message], failed: Collection[int] = ()
    ) -> dict[str, Message]:
        """Return the weighted mean of the replies of each coalition, which is all that can be learnt of them.

        It stands under the name of the first member that answered, as if that member alone had replied.

        Parameters
        ----------
        sent : mapping
            The message that each client was sent.
        answers : mapping
            The masked reply of each client that answered.
        failed : collection of int
            Coalitions whose round is given up; they agree on new keys before the next one.

        Raises
        ------
        Paused
            If too few members of a coalition are left, or answer when masks are taken away.
        """
        asked = [name for name, message in sent.items() if "group" in message]
        of = self._coalition_of(asked)
        masked: dict[int, dict[str, Message]] = {coalition: {} for coalition in sorted(set(of.values()))}
        for name in sorted(answers):
            masked[of[name]][name] = answers[name]
        for coalition in sorted(set(of.values()) & set(failed)):
            del masked[coalition], self.groups[coalition]
        for coalition, replies in masked.items():
            group = self.groups[coalition]
            odd = _odd(group, replies)
            for name in odd:
                del replies[name]
            if odd:
                warnings.warn(f"a round goes on without {reasons(odd)}", FedcollabWarning, stacklevel=5)
            if len(replies) < group.threshold:
                why = {**self.federation.absent, **odd}
                gone = {name: why.get(name, "no update") for name in group.gone(sorted(replies))}
                raise Paused(
                    f"{len(replies)} of {len(group.members)} members of a coalition have sent their masked update, "
                    f"{group.threshold} must: {reasons(gone)}"
                )
            group.received(replies)
        shares = self._unmask(sent, masked)
        return {
            min(replies): self._mean(coalition, sent, replies, shares.get(coalition, {}))
            for coalition, replies in masked.items()
        }

    def _unmask(
        self, sent: Mapping[str, Message], masked: Mapping[int, Mapping[str, Message]]
    ) -> dict[int, dict[str, Any]]:
        """Ask members whose groups recover from dropouts for shares of masks: one call for all coalitions."""
        asked: dict[str, Message] = {}
        for coalition, replies in masked.items():
            group, left = self.groups[coalition], sorted(replies)
            for name in left if group.recovers else ():
                message = {key: sent[name][key] for key in ("group", "training", "round")}
                asked[name] = {**message, "left": left, "boxes": group.boxes_for(name, left)}
        answers = self.federation.call(secure_unmask, asked, partial=True) if asked else {}
        absent = dict(self.federation.absent) if asked else {}
        shares: dict[int, dict[str, Any]] = {}
        for coalition, replies in masked.items():
            group = self.groups[coalition]
            wanted = len(replies), 1 + len(group.gone(sorted(replies)))
            shares[coalition] = {
                name: answers[name]["shares"]
                for name in replies
                if name in answers and answers[name]["shares"].shape[:2] == wanted
            }
            if group.recovers and len(shares[coalition]) < group.threshold:
                gone = {name: absent.get(name, "no shares") for name in replies if name not in shares[coalition]}
                raise Paused(
                    f"{len(shares[coalition])} of {len(group.members)} members of a coalition have revealed shares of "
                    f"their masks, {group.threshold} must: {reasons(gone)}"
                )
        return shares

    def _mean(
        self, coalition: int, sent: Mapping[str, Message], replies: Mapping[str, Message], shares: Mapping[str, Any]
    ) -> Message:
        """Add up a coalition's masked replies and return the mean."""
        group, first = self.groups[coalition], next(iter(replies))
        layout = replies[first]["layout"]
        if any(reply["layout"] != layout or len(reply["masked"]) != len(replies[first]["masked"])
               for reply in replies.values()):  # fmt: skip
            raise InputError("the members of a coalition have sent updates of different shapes")
        cut = {name: reply["cut"] for name, reply in replies.items() if reply["cut"]}
        if cut:
            warnings.warn(
                f"round {sent[first]['round']}: updates were larger than secure aggregation carries and were cut: "
                + ", ".join(f"{count} number(s) of `{name}`" for name, count in sorted(cut.items())),
                FedcollabWarning,
                stacklevel=6,
            )
        quantities = self.federation.quantities
        share = sum(quantities[name] for name in replies) / sent[first]["total"]
        masked = {name: reply["masked"] for name, reply in replies.items()}
        arrays = unpack_mean(group.add_up(member.context_of(sent[first]), masked, shares), layout, share)
        arrays["w"] += sent[first]["w"]
        return {key: value.astype(np.float32) for key, value in arrays.items()}

    def _agree(self, coalitions: Sequence[int]) -> None:
        """Agree on keys in these coalitions: one call for all of them."""
        new = {coalition: self._new(coalition) for coalition in coalitions}
        asked = {
            name: {"group": group.name, "coalition": group.members, "threshold": group.threshold}
            for group in new.values()
            for name in group.members
        }
        if not asked:
            return
        answers = self.federation.call(secure_keys, asked)
        for group in new.values():
            group.certificates = {name: answers[name]["certificate"] for name in group.members}
            for name, certificate in group.certificates.items():
                if Certificate.from_json(certificate).name != name:
                    raise Paused(f"client `{name}` sent a certificate of secure aggregation in the name of another")
        self.groups |= new

    def _new(self, coalition: int) -> Group:
        """Return a new group of a coalition."""
        return Group.of(self.coalitions[coalition], dropouts=self.way == SECURE[0])

    def _coalition_of(self, names: Sequence[str] | Mapping[str, Any]) -> dict[str, int]:
        """Return the coalition of each of these clients."""
        of = {name: coalition for coalition, members in enumerate(self.coalitions) for name in members}
        return {name: of[name] for name in names}

    def to_message(self) -> dict[str, Any]:
        """Return the groups as plain values, for a checkpoint."""
        return {str(coalition): group.to_message() for coalition, group in self.groups.items()}

    def restore(self, plain: Mapping[str, Any]) -> None:
        """Take up the groups of a checkpoint, whose keys the silos still have."""
        self.groups = {int(coalition): Group.from_message(group) for coalition, group in plain.items()}


def _odd(group: Group, replies: Mapping[str, Message]) -> dict[str, str]:
    """Return the members whose boxes are not one for each member, or not of the size that most members' have."""
    sizes = Counter(reply["boxes"].shape for reply in replies.values() if len(reply["boxes"]) == len(group.members))
    usual = sizes.most_common(1)[0][0] if sizes else (len(group.members), 0)
    return {
        name: f"`boxes` has shape {reply['boxes'].shape}; expected {usual}"
        for name, reply in replies.items()
        if reply["boxes"].shape != usual
    }
