"""What secure aggregation adds to training at a silo: keys before the first round, masks on updates, shares after.

`secure-keys`    draw a key for a coalition, and certify it
`secure-unmask`  reveal shares of masks, where a coalition may go on without some of its members

Updates travel in the replies of `train` and `train-folds` as ever, as `masked` integers in the place of arrays. Before
it trains on, a member measures the model that the others' updates went into, and refuses an absurd one: under masks
nobody sees who has lied.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from fedcollab.secure import member
from fedcollab.secure.keys import Certificate, Unproven
from fedcollab.secure.nested import limit_sums
from fedcollab.silo.rounding import moved_for_decision, share_errors
from fedcollab.training.scores import SCORES
from fedcollab.wire.action import Refused, Release, Step, action, free
from fedcollab.wire.fields import Positive, Sides, Whole
from fedcollab.wire.limits import Limits
from fedcollab.wire.message import Message
from fedcollab.wire.silo import Silo

#: a model is absurd if, on this share of rows, its loss is so many times that of guessing, or of the first model
ABSURD, SHARE = 10.0, 0.2

Boxes = Annotated[NDArray[np.uint8], Sides("_", "_")]
Masked = Annotated[NDArray[np.uint32], Sides("_")]
Layout = list[tuple[str, list[Whole]]]


class SecureFields(TypedDict):
    """What messages of `train` and `train-folds` carry for secure aggregation (see `secure.member`).

    Attributes
    ----------
    group : str
        The group whose members add up their updates under masks.
    total : int
        The samples of all members.
    certificates : list of str
        The members' keys, until the client has answered once.
    boxes : array
        What the members sealed for this one in the last round, where everybody must answer.
    """

    group: NotRequired[str]
    total: NotRequired[Positive]
    certificates: NotRequired[list[str]]
    boxes: NotRequired[Boxes]


class SecureReply(TypedDict):
    """What replies have in the place of arrays where updates are masked: integers, their layout, boxes, values cut."""

    masked: NotRequired[Masked]
    layout: NotRequired[Layout]
    boxes: NotRequired[Boxes]
    cut: NotRequired[Whole]


class KeysMessage(TypedDict):
    """What a member is sent before the first round: the group's id, its members, and how many must be left."""

    group: str
    coalition: list[str]
    threshold: Positive


class KeysReply(TypedDict):
    """What a member answers: the certificate of its key for the group, as JSON."""

    certificate: str


class UnmaskMessage(TypedDict):
    """What a member is sent after a round: who is left, and what each of them sealed for it."""

    group: str
    training: str
    round: Whole
    left: list[str]
    boxes: Boxes


class UnmaskReply(TypedDict):
    """What a member answers: shares of seeds, for each member that is left and each that is not."""

    shares: Annotated[NDArray[np.uint8], Sides("_", "_", 16)]


def _limit_keys(message: KeysMessage, silo: Silo, limits: Limits) -> None:
    """Refuse a group that is smaller than the silo asks for, or could go on without members where it insists on all."""
    members = len(set(message["coalition"]))
    if members < limits.min_coalition:
        raise Refused(f"the group has {members} members; this silo asks for at least {limits.min_coalition}")
    if limits.secure_aggregation == "everyone" and message["threshold"] < members:
        raise Refused(
            f"sums could be formed of {message['threshold']} of {members} members; this silo adds up its updates with "
            "everyone or not at all (secure aggregation 'everyone')"
        )


def _wrong_certificate(message: KeysMessage, reply: KeysReply) -> str | None:
    """Return why a certificate is not one of a member of this group, or None."""
    try:
        found = Certificate.from_json(reply["certificate"])
    except Unproven as error:
        return str(error)
    if (found.group, found.members, found.threshold) != (
        message["group"],
        sorted(message["coalition"]),
        message["threshold"],
    ):
        return "the certificate is for another group, or for other members"
    return None


@action(
    "secure-keys",
    purpose="drew a key for the masks of a coalition: its public part, signed",
    release=Release.NOTHING,
    step=Step.TRAINING,
    limit=_limit_keys,
    cost=free,
    consistent=_wrong_certificate,
)
def secure_keys(message: KeysMessage, silo: Silo) -> KeysReply:
    """Draw a key for a group of secure aggregation, and return its certificate."""
    return {"certificate": member.join(silo, message["group"], message["coalition"], message["threshold"])}


@action(
    "secure-unmask",
    purpose="revealed shares of the masks that are left in a sum over a coalition",
    release=Release.NOTHING,
    step=Step.TRAINING,
    limit=None,
    cost=free,
)
def secure_unmask(message: UnmaskMessage, silo: Silo) -> UnmaskReply:
    """Reveal shares of masks, so that the server can add up the updates of those who are left."""
    return {"shares": member.reveal(silo, message)}


def limit_masks(message: Mapping[str, Any], silo: Silo, limits: Limits) -> None:
    """Refuse an update without masks where the silo insists on them, and sums that would uncover single updates.

    Parameters
    ----------
    message : mapping
        A message of `train` or `train-folds`.
    silo : Silo
        The silo.
    limits : Limits
        Its limits.

    Raises
    ------
    Refused
        If masks are missing, or the same model was added up with others.
    """
    if "group" in message:
        limit_sums(message, silo, limits)
    elif limits.secure_aggregation and message.get("train", True):
        raise Refused("this silo sends its updates only under masks (secure aggregation); the server asks for none")


def sent_before(messages: Mapping[str, Any], silos: Mapping[str, Silo]) -> dict[str, Message]:
    """Return the replies of members that have answered the same message before.

    Parameters
    ----------
    messages, silos : mapping
        As in `client.train_stacked`.

    Raises
    ------
    Refused
        If a member must not answer (see `secure.member.again`).
    """
    replies = {
        name: member.again(silos[name], message)
        for name, message in messages.items()
        if "group" in message and message.get("train", True)
    }
    return {name: reply for name, reply in replies.items() if reply is not None}


def masked_reply(message: Message, silo: Silo, arrays: Message, plain: Message) -> Message:
    """Return a member's reply: its arrays under masks where the message asks for that, else as they are.

    Parameters
    ----------
    message : dict
        What the member was sent.
    silo : Silo
        The member.
    arrays : dict of arrays
        Its update.
    plain : dict
        The other fields of the reply, which are sent as they are.
    """
    if "group" not in message:
        return {**arrays, **plain}
    reply = {**member.mask(silo, message, arrays, len(silo.arrays.y)), **plain}
    member.keep_sent(silo, reply)
    return reply


def refuse_absurd(message: Message, silo: Silo, losses: NDArray[np.float64]) -> None:
    """Refuse to train on from a model that is absurd on the member's held-out rows.

    The rule: on more than `SHARE` of the rows the loss is not a number, or more than `ABSURD` times the larger of
    ln(classes), which guessing has, and the mean loss of the first model of this training. The share is moved by
    its error first, so that a refusal says nothing about single rows.

    Parameters
    ----------
    message : dict
        What the member was sent.
    silo : Silo
        The member, which keeps the loss of the first model.
    losses : array
        The loss of each held-out row under the model that was sent.

    Raises
    ------
    Refused
        If it is absurd.
    """
    kept = silo.state[member.GROUP]
    first = {**kept.get("first", {})}
    mean = float(losses.mean())
    began = first.setdefault(message["training"], mean if math.isfinite(mean) else 0.0)
    most = ABSURD * max(SCORES[silo.schema.task].guessing(silo.schema.outputs), began)
    share = float((~(losses <= most)).mean())
    error = float(share_errors(share, len(losses)))
    if moved_for_decision(share, error, silo, "absurd", message["w"]) > SHARE:
        raise Refused(
            f"the model of round {message['round']} has a loss over {ABSURD:g} times that of guessing, or of the first "
            "model, on many of this silo's held-out rows: an update that went into it was absurd (under masks it "
            "cannot be told whose); this silo does not go on"
        )
    silo.state[member.GROUP] = {**kept, "first": first}
