"""A member's side of secure aggregation: what leaves a silo is its update plus masks that only cancel in the sum.

    y_u = q(x_u) + sum_{v > u} m_uv - sum_{v < u} m_uv [+ b_u]                    mod 2^32

m_uv is the stream of the two members' round seed: it cancels between u and v. Where a group may go on without some of
its members (`threshold` below their number), each member adds a stream of its own, b_u, whose seed is drawn anew every
round, and sends with y_u a box for every other member: a share of that seed, and of its round seed with every other.
When the server has said who is left (`reveal`), members give the shares of b_u for those who are, and of m_ud for each
d who is not: never both of one member in one round. So the server learns the sum over those who are left, or nothing.
Where everybody must answer (`threshold` is their number) no b_u is needed, because there is nothing to recover.

What a silo keeps, so that it is true whatever the server says:

- the keys of its partners' silos: those that its administrator gave, else those that it saw first
- the round that it masked last: no round is masked twice with different content, an older one never
- who was left, as told in that round: nothing is revealed for any other list
- with whom it has added up which model, and which update: nothing is added up for the same with others (`nested`)

The context of every seed and box is a digest of all that the members are sent alike. A model crafted for one member
makes garbage of the sum, and is noticed: boxes do not open.

Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal, Seth: Practical secure aggregation for
privacy-preserving machine learning. CCS 2017, Figure 4, with keys agreed once for many rounds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.secure import keys, shamir
from fedcollab.secure.keys import BOX, Certificate, Unproven
from fedcollab.secure.nested import LEAST, limit_left, remember_sum, update_digest
from fedcollab.secure.quantise import Integers, to_integers
from fedcollab.wire.action import Refused
from fedcollab.wire.message import Message
from fedcollab.wire.silo import Silo

#: where a silo keeps its group, the reply that it sent last, and whom it knows
GROUP, SENT, IDENTITY = "train-secure", "train-secure-sent", "secure-identity"
#: fields of a message that differ between members; all others must be the same
OWN_FIELDS = ("since", "certificates", "boxes", "alone")
#: integers at the end of a masked update whose sum is known
CHECKS = 4

Bytes = NDArray[np.uint8]


def least_left(members: int) -> int:
    """Return how many members must be left for a sum, where some may drop out: more than two thirds, and three.

    Two lists of that many members have more than a third of them in common, who answer for one of the lists alone.

    Examples
    --------
    >>> [least_left(n) for n in (3, 4, 5, 10, 20)]
    [3, 3, 4, 7, 14]
    """
    return max(LEAST, 2 * members // 3 + 1)


def context_of(message: Mapping[str, Any]) -> bytes:
    """Return a digest of all fields of a message that must be the same for every member.

    Parameters
    ----------
    message : mapping
        What a member is sent, with at least `group`, `training` and `round`.
    """
    digest = hashlib.sha256(keys.LABEL.encode())
    for key in sorted(set(message) - set(OWN_FIELDS)):
        value = message[key]
        if isinstance(value, np.ndarray):
            about, content = [key, str(value.dtype), list(value.shape)], np.ascontiguousarray(value).tobytes()
        else:
            about, content = [key, value], b""
        text = json.dumps(about, sort_keys=True).encode()
        digest.update(len(text).to_bytes(8, "big") + text + len(content).to_bytes(8, "big") + content)
    return digest.digest()


def check_words(context: bytes) -> Integers:
    """Return the integers that every member adds to the end of its update, known to the server too."""
    return np.frombuffer(hashlib.sha256(b"check" + context).digest()[: 4 * CHECKS], dtype="<u4").astype(np.uint32)


def join(silo: Silo, group: str, members: Sequence[str], threshold: int) -> str:
    """Draw a key for a group, and return its certificate; asked again for the same group, the same certificate.

    Parameters
    ----------
    silo : Silo
        The member.
    group : str
        The group's id.
    members : sequence of str
        All members, this one included.
    threshold : int
        How many must be left for a sum: all of them, or at least `least_left`.

    Returns
    -------
    str
        The certificate, as JSON.

    Raises
    ------
    Refused
        If there are fewer than three members, the silo is none of them, or the threshold is too low.
    """
    members = sorted(set(members))
    known = silo.state.get(GROUP)
    if known is not None and known["group"] == group:
        if (known["members"], known["threshold"]) != (members, threshold):
            raise Refused(f"group {group[:40]!r} was begun with other members, or another threshold")
        return str(known["certificate"])
    if len(members) < LEAST or silo.name not in members:
        raise Refused(
            f"secure aggregation needs at least {LEAST} members, this silo among them; it was asked for "
            f"{', '.join(members) or 'none'}: with two, each learns the other's update"
        )
    if not least_left(len(members)) <= threshold <= len(members):
        raise Refused(f"`threshold` (={threshold}) must be from {least_left(len(members))} to {len(members)}")
    key = keys.draw_key()
    certificate = keys.certify(_identity(silo), silo.name, group, members, threshold, key).to_json()
    silo.state.pop(SENT, None)
    silo.state[GROUP] = {
        "group": group,
        "members": members,
        "threshold": threshold,
        "certificate": certificate,
        "private": np.frombuffer(key, dtype=np.uint8),
        "rounds": {},
    }
    return certificate


def again(silo: Silo, message: Mapping[str, Any]) -> Message | None:
    """Return the reply that was sent before, if the same message came again; None if it is a new one.

    Parameters
    ----------
    silo : Silo
        The member.
    message : mapping
        What it was sent: `group`, `training`, `round`, `coalition`, `certificates` until it has answered once, `boxes`
        of the last round where everybody must answer, and all that the training needs.

    Raises
    ------
    Refused
        If the silo has no such group, its partners are not who they should be, the round is an old one, or the last
        round was not the same for all.
    """
    kept = silo.state.get(GROUP)
    if kept is None or kept["group"] != message["group"]:
        raise Refused("this silo has no key for this group of secure aggregation; the training must begin anew")
    if sorted(message.get("coalition", ())) != kept["members"]:
        raise Refused("the coalition is not the group that keys were agreed for")
    context = context_of(message)
    last = kept["rounds"].get(message["training"], 0)
    if message["round"] == last and kept.get("context") == context.hex() and SENT in silo.state:
        return dict(silo.state[SENT])
    if message["round"] <= last:
        raise Refused(
            f"round {message['round']} of this training was masked already, with other content; a mask is used once"
        )
    if "pairs" not in kept:
        _meet(silo, kept, message.get("certificates", []))
    elif kept["threshold"] == len(kept["members"]) and "context" in kept:
        _compare(silo, kept, message)
    return None


def mask(silo: Silo, message: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], samples: int) -> Message:
    """Return what a member sends of its update: integers that only the sum over all members says anything about.

    Parameters
    ----------
    silo : Silo
        The member; `again` has seen the message.
    message : mapping
        What it was sent, with the weights `w` that training began with and the coalition's `total` of samples.
    arrays : mapping
        What it would send without masks. Of `w` the change is sent.
    samples : int
        Its own samples: what its arrays weigh is `samples / total`.

    Returns
    -------
    dict
        `masked`, the `layout` of the arrays in it, `boxes` for the other members, and how many values were `cut`.

    Raises
    ------
    Refused
        If `total` is less than the member's own samples.
    """
    kept, context = silo.state[GROUP], context_of(message)
    if not 0 < samples <= message["total"]:
        raise Refused(f"`total` (={message['total']}) is less than this silo's own {samples} samples")
    parts = {key: np.asarray(arrays[key], dtype=np.float64) for key in sorted(arrays)}
    parts["w"] = parts["w"] - np.asarray(message["w"], dtype=np.float64)
    values = np.concatenate([part.ravel() for part in parts.values()])
    integers, cut = to_integers(values, samples / message["total"])
    masked = np.concatenate([integers, check_words(context)])
    members, me = kept["members"], kept["members"].index(silo.name)
    seeds = [keys.round_seed(bytes(secret), context) for secret in kept["pairs"]]
    for other, seed in enumerate(seeds):
        if other != me:
            add_mask(masked, seed, 1 if me < other else -1)
    shares: list[bytes] = [b""] * len(members)
    if kept["threshold"] < len(members):
        seeds[me] = shamir.draw()
        add_mask(masked, seeds[me], 1)
        split = [shamir.split(seed, len(members), kept["threshold"]) for seed in seeds]
        shares = [b"".join(shamir.to_bytes(each[to]) for each in split) for to in range(len(members))]
    boxes = np.zeros((len(members), BOX + len(shares[me])), dtype=np.uint8)
    for other, secret in enumerate(kept["pairs"]):
        if other != me:
            box = keys.seal(bytes(secret), silo.name, context, shares[other])
            boxes[other] = np.frombuffer(box, dtype=np.uint8)
    layout = [[key, list(part.shape)] for key, part in parts.items()]
    reply: Message = {"masked": masked, "layout": layout, "boxes": boxes, "cut": cut}
    update = update_digest(message)
    if kept["threshold"] == len(members):
        limit_left(update, members, silo)
    remember_sum(message, silo)
    silo.state[GROUP] = {
        **{key: value for key, value in kept.items() if key not in ("left", "own")},
        "rounds": {**kept["rounds"], message["training"]: message["round"]},
        "training": message["training"],
        "context": context.hex(),
        "update": update,
        **({"own": np.frombuffer(shares[me], dtype=np.uint8)} if shares[me] else {}),
    }
    return reply


def keep_sent(silo: Silo, reply: Message) -> None:
    """Keep the whole reply to the last message, to send the same if the same message comes again."""
    silo.state[SENT] = dict(reply)


def reveal(silo: Silo, message: Mapping[str, Any]) -> Bytes:
    """Return shares of the masks that stand between the server and the sum over those who are left.

    Parameters
    ----------
    silo : Silo
        A member that is left.
    message : mapping
        `group`, `training` and `round`; `left`, the members that are; `boxes`, what each of them sealed for this one.

    Returns
    -------
    array
        For each member that is left, in order of name: the share of its own mask's seed, then of its round seeds with
        each of those who are not.

    Raises
    ------
    Refused
        If too few are left, the silo was told another list in this round, or a partner was sent something else.
    """
    kept = silo.state.get(GROUP)
    if kept is None or kept["group"] != message["group"] or "own" not in kept:
        raise Refused("this silo has masked nothing that could be revealed")
    members, left = kept["members"], sorted(set(message["left"]))
    if (kept["training"], kept["rounds"][kept["training"]]) != (message["training"], message["round"]):
        raise Refused(f"round {message['round']} is not the one that this silo masked last")
    if silo.name not in left or not set(left) <= set(members) or len(left) < kept["threshold"]:
        raise Refused(f"{len(left)} member(s) are left; this silo among them, at least {kept['threshold']} must be")
    if kept.get("left", left) != left:
        raise Refused(
            f"this silo was told that {', '.join(kept['left'])} are left in round {message['round']}, and now "
            f"{', '.join(left)}; shares for both would uncover single updates"
        )
    if len(message["boxes"]) != len(left):
        raise Refused(f"`boxes` has {len(message['boxes'])} rows for {len(left)} members")
    context, me = bytes.fromhex(kept["context"]), members.index(silo.name)
    gone = [members.index(name) for name in members if name not in left]
    rows = []
    for name, box in zip(left, message["boxes"], strict=True):
        number = members.index(name)
        opened = bytes(kept["own"]) if number == me else _open(kept, name, context, bytes(box))
        shares = np.frombuffer(opened, dtype=np.uint8).reshape(len(members), shamir.BYTES)
        rows.append(shares[[number, *gone]])
    limit_left(kept["update"], left, silo)
    silo.state[GROUP] = {**kept, "left": left}
    return np.stack(rows)


def _identity(silo: Silo) -> bytes:
    """Return the silo's private key: that under which it was admitted, else one that it draws once."""
    if silo.identity:
        return silo.identity
    kept = silo.state.get(IDENTITY, {})
    if "key" not in kept:
        kept = {"partners": {}, **kept, "key": np.frombuffer(keys.draw_identity(), dtype=np.uint8)}
        silo.state[IDENTITY] = kept
    return bytes(kept["key"])


def _meet(silo: Silo, kept: Message, certificates: Sequence[str]) -> None:
    """Check the partners' certificates, and keep a secret with each of them instead of the group key."""
    found = {each.name: each for each in map(_read, certificates)}
    if sorted(found) != kept["members"] or len(certificates) != len(found):
        raise Refused(f"certificates of {', '.join(sorted(found)) or 'nobody'} came for {', '.join(kept['members'])}")
    if found[silo.name].to_json() != kept["certificate"]:
        raise Refused("the certificate that came back under this silo's name is not its own")
    given = {name: keys.without_comment(text) for name, text in silo.partners.items()}
    seen = dict(silo.state.get(IDENTITY, {}).get("partners", {}))
    for name, each in found.items():
        if (each.group, each.members, each.threshold) != (kept["group"], kept["members"], kept["threshold"]):
            raise Refused(f"the certificate of `{name}` is for another group, or for other members")
        if name == silo.name:
            continue
        planned = silo.agreed.partners.get(name, "")
        if planned and keys.fingerprint(each.identity) != planned:
            raise Refused(f"the certificate of `{name}` is signed by another key than the plan names for it")
        if not planned and name not in given and (given or silo.limits.secure_aggregation):
            raise Refused(f"this silo's administrator has given no public key of `{name}` (partners/{name}.pub)")
        known = each.identity if planned else seen.get(name, each.identity)
        if given.get(name, known) != each.identity:
            raise Refused(f"the certificate of `{name}` is signed by another key than that of the silo `{name}`")
        seen[name] = each.identity
    private = bytes(kept["private"])
    secrets = [bytes(32) if name == silo.name else keys.pair_secret(private, found[name], silo.name) for name in found]
    ordered = dict(zip(found, secrets, strict=True))
    own = silo.state.get(IDENTITY, {})
    silo.state[IDENTITY] = {**own, "partners": seen}
    pairs = np.frombuffer(b"".join(ordered[name] for name in kept["members"]), dtype=np.uint8).reshape(-1, 32)
    silo.state[GROUP] = {**{key: value for key, value in kept.items() if key != "private"}, "pairs": pairs}


def _read(text: str) -> Certificate:
    """Read a certificate; one that is not proven is refused."""
    try:
        return Certificate.from_json(text)
    except Unproven as error:
        raise Refused(str(error)) from None


def _compare(silo: Silo, kept: Message, message: Mapping[str, Any]) -> None:
    """Check that all members were sent the same in the last round: each box of it opens in one's own context."""
    boxes, context = message.get("boxes"), bytes.fromhex(kept["context"])
    if boxes is None or len(boxes) != len(kept["members"]):
        raise Refused("the boxes of the last round are missing, by which members compare what they were sent")
    for name, box in zip(kept["members"], boxes, strict=True):
        if name != silo.name:
            _open(kept, name, context, bytes(box))


def _open(kept: Message, name: str, context: bytes, box: bytes) -> bytes:
    """Open a box of a partner."""
    try:
        return keys.unseal(bytes(kept["pairs"][kept["members"].index(name)]), name, context, box)
    except Unproven:
        raise Refused(
            f"`{name}` was sent something else than this silo in the last round, or its answer was changed; this silo "
            "does not go on"
        ) from None


def add_mask(total: Integers, seed: int, sign: int) -> None:
    """Add the stream of a seed to a vector of integers modulo 2^32, or take it away, in place.

    Parameters
    ----------
    total : array
        The vector.
    seed : int
        The seed of the stream.
    sign : int
        1 to add it, -1 to take it away.
    """
    mask_of_seed = keys.stream(seed, len(total))
    if sign > 0:
        np.add(total, mask_of_seed, out=total)
    else:
        np.subtract(total, mask_of_seed, out=total)
