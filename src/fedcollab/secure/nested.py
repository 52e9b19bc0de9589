"""Sums over coalitions inside each other, which a silo refuses: it remembers with whom it has added up which models.

sum over S - sum over S without i = the update of i
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.wire.action import Refused
from fedcollab.wire.limits import Limits
from fedcollab.wire.silo import Silo

#: where a silo keeps it, and how many models it remembers
SUMS, REMEMBERED = "secure-sums", 20_000
#: where a silo keeps who was left in the sum when it added up which update
LEFT = "secure-left"
#: the fewest members of a coalition, of those who are left, and by which coalitions may differ
LEAST = 3

Bytes = NDArray[np.uint8]


def limit_sums(message: Mapping[str, Any], silo: Silo, limits: Limits) -> None:
    """Refuse to add up a model with others than before.

    The same model with S and with S without i gives the update of i as a difference. A server could change a model by
    next to nothing, and it could take more than two sums: those over A, B, and A and B and i. So a silo that insists on
    secure aggregation, in its limits or by the plan that it has approved, adds up with one coalition in a plan
    (without a plan: ever), whatever the model; and from plan to plan with none that differs by one or two members.

    Parameters
    ----------
    message : mapping
        What the silo was sent, with `coalition` and the weights `w`.
    silo : Silo
        The silo, which remembers what it has added up with whom.
    limits : Limits
        Its limits.

    Raises
    ------
    Refused
        If it has added up the same model, or under the stricter rule any, with others.
    """
    members = sorted(set(message.get("coalition", ())))
    lists, models, of = _remembered(silo)
    for digest in _digests(message["w"]):
        for row in np.flatnonzero((models == digest).all(axis=1)) if len(models) else ():
            if lists[of[row]] != members:
                raise Refused(
                    f"this silo has added up the same model with {', '.join(lists[of[row]])}: the difference of two "
                    "such sums would uncover single updates"
                )
    insists = limits.secure_aggregation or silo.agreed.masked
    for earlier, plan in zip(lists, _plans(silo, lists), strict=True) if insists else ():
        differing = sorted(set(earlier) ^ set(members))
        if 0 < len(differing) < LEAST:
            raise Refused(
                f"the coalition differs by {', '.join(differing)} alone from an earlier one of this silo: the "
                "difference of two sums could uncover single updates"
            )
        if differing and plan == silo.agreed.plan:
            raise Refused(
                f"this silo has added up with {', '.join(earlier)} in the same plan, or without one: of several sums "
                "over different members single updates can be computed; another coalition takes another plan"
            )


def _remembered(silo: Silo) -> tuple[list[list[str]], Bytes, NDArray[np.int64]]:
    """Return the member lists, the digests of models, and with which list each model was added up."""
    kept = silo.state.get(SUMS)
    if kept is None:
        return [], np.zeros((0, 16), dtype=np.uint8), np.zeros(0, dtype=np.int64)
    return [list(members) for members in kept["lists"]], kept["models"], kept["of"]


def _plans(silo: Silo, lists: list[list[str]]) -> list[str]:
    """Return the digest of the plan of each list; an empty text without one."""
    kept = silo.state.get(SUMS, {})
    return [str(plan) for plan in kept.get("plans", [""] * len(lists))]


def limit_left(update: Bytes, left: Sequence[str], silo: Silo) -> None:
    """Refuse to add up the very same update with other members than before, and remember with whom.

    A server that begins a training anew asks for the same first updates, and gets the same, errors included. Were a
    member left out of the second sum, the difference would be its update.

    Parameters
    ----------
    update : array
        From `update_digest`.
    left : sequence of str
        The members whose updates are added up.
    silo : Silo
        The silo.

    Raises
    ------
    Refused
        If they are others.
    """
    nothing = {"lists": [], "updates": np.zeros((0, 16), dtype=np.uint8), "of": np.zeros(0, dtype=np.int64)}
    kept = silo.state.get(LEFT, nothing)
    lists, updates, of = [list(each) for each in kept["lists"]], kept["updates"], kept["of"]
    for row in np.flatnonzero((updates == update).all(axis=1)):
        if lists[of[row]] != list(left):
            raise Refused(
                f"this silo's update of this model was added up with {', '.join(lists[of[row]])} before: the "
                "difference of two such sums would uncover single updates; begin with another seed"
            )
        return
    if list(left) not in lists:
        lists.append(list(left))
    silo.state[LEFT] = {
        "lists": lists,
        "updates": np.concatenate([updates, update[None]])[-REMEMBERED:],
        "of": np.append(of, lists.index(list(left)))[-REMEMBERED:],
    }


def update_digest(message: Mapping[str, Any]) -> Bytes:
    """Return a digest of a coalition and what a member's update follows from: setting, round, folds, what was sent.

    The same model with another coalition is what `limit_sums` refuses.
    """
    plain = [message.get(key) for key in ("setting", "round", "folds")]
    digest = hashlib.sha256(json.dumps([sorted(set(message["coalition"])), *plain]).encode())
    for key in sorted(message):
        if isinstance(message[key], np.ndarray) and message[key].dtype.kind == "f":
            digest.update(key.encode() + np.ascontiguousarray(message[key]).tobytes())
    return np.frombuffer(digest.digest()[:16], dtype=np.uint8)


def remember_sum(message: Mapping[str, Any], silo: Silo) -> None:
    """Remember with whom a model is added up; arguments as in `limit_sums`."""
    lists, models, of = _remembered(silo)
    members, plans = sorted(set(message["coalition"])), _plans(silo, lists)
    if (members, silo.agreed.plan) not in zip(lists, plans, strict=True):
        lists.append(members)
        plans.append(silo.agreed.plan)
    new = _digests(message["w"])
    models = np.concatenate([models, np.stack(new)])[-REMEMBERED:]
    of = np.concatenate([of, np.full(len(new), lists.index(members), dtype=np.int64)])[-REMEMBERED:]
    silo.state[SUMS] = {"lists": lists, "plans": plans, "models": models, "of": of}


def _digests(w: NDArray[Any]) -> list[Bytes]:
    """Return a digest of each model: of the one row, or of the rows of a stack."""
    rows = np.ascontiguousarray(w).reshape(-1, w.shape[-1])
    return [np.frombuffer(hashlib.sha256(row.tobytes()).digest()[:16], dtype=np.uint8) for row in rows]
