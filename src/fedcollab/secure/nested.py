"""Sums over coalitions inside each other, which a silo refuses: it remembers with whom it has added up which models.

sum over S - sum over S without i = the update of i
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.wire.action import Refused
from fedcollab.wire.limits import Limits
from fedcollab.wire.silo import Silo

#: where a silo keeps it, and how many models it remembers
SUMS, REMEMBERED = "secure-sums", 20_000
#: the fewest members of a coalition, of those who are left, and by which coalitions may differ
LEAST = 3

Bytes = NDArray[np.uint8]


def limit_sums(message: Mapping[str, Any], silo: Silo, limits: Limits) -> None:
    """Refuse to add up a model with others than before.

    The same model with S and with S without i gives the update of i as a difference. A silo whose limits insist on
    secure aggregation refuses every coalition that differs from an earlier one by one or two members, whatever the
    model: a server could change a model by next to nothing.

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
    for earlier in lists if limits.secure_aggregation else ():
        differing = sorted(set(earlier) ^ set(members))
        if 0 < len(differing) < LEAST:
            raise Refused(
                f"the coalition differs by {', '.join(differing)} alone from an earlier one of this silo: the "
                "difference of two sums could uncover single updates"
            )


def _remembered(silo: Silo) -> tuple[list[list[str]], Bytes, NDArray[np.int64]]:
    """Return the member lists, the digests of models, and with which list each model was added up."""
    kept = silo.state.get(SUMS)
    if kept is None:
        return [], np.zeros((0, 16), dtype=np.uint8), np.zeros(0, dtype=np.int64)
    return [list(members) for members in kept["lists"]], kept["models"], kept["of"]


def remember_sum(message: Mapping[str, Any], silo: Silo) -> None:
    """Remember with whom a model is added up; arguments as in `limit_sums`."""
    lists, models, of = _remembered(silo)
    members = sorted(set(message["coalition"]))
    if members not in lists:
        lists.append(members)
    new = _digests(message["w"])
    models = np.concatenate([models, np.stack(new)])[-REMEMBERED:]
    of = np.concatenate([of, np.full(len(new), lists.index(members), dtype=np.int64)])[-REMEMBERED:]
    silo.state[SUMS] = {"lists": lists, "models": models, "of": of}


def _digests(w: NDArray[Any]) -> list[Bytes]:
    """Return a digest of each model: of the one row, or of the rows of a stack."""
    rows = np.ascontiguousarray(w).reshape(-1, w.shape[-1])
    return [np.frombuffer(hashlib.sha256(row.tobytes()).digest()[:16], dtype=np.uint8) for row in rows]
