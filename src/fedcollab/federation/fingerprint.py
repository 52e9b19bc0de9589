"""Whether a client's data are those of the last time: a checksum that shows equality, and nothing else."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, TypedDict

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from fedcollab.data.samples import is_table
from fedcollab.federation.federation import Federation
from fedcollab.wire.action import Empty, Release, Step, action, free
from fedcollab.wire.silo import Silo

KEPT = ("quantity", "test_quantity", "label_counts", "min_coalition")


class FingerprintReply(TypedDict):
    """The reply of `fingerprint`: sixteen hexadecimal digits of a checksum."""

    fingerprint: Annotated[str, Meta(pattern=r"\A[0-9a-f]{16}\Z")]


@action(
    "fingerprint",
    purpose="gave a checksum of the data, to show whether they changed",
    release=Release.NOTHING,
    step=Step.SCHEMA,
    limit=None,
    cost=free,
)
def fingerprint(message: Empty, silo: Silo) -> FingerprintReply:
    """Return 16 digits of a checksum over all the client's samples, as it gave them.

    A silo's own key comes first, so that nobody can try out what the samples might be. No schema comes in: of two that
    differ by a hair, equal checksums would tell that nobody has the value at which numbers are rounded otherwise.
    """
    data, digest = silo.data, hashlib.sha256(silo.key)
    for part in (data.x, data.y, data.x_test, data.y_test, data.groups):
        for values in _arrays(part):
            digest.update(f"{values.dtype}{values.shape}".encode())
            digest.update(np.ascontiguousarray(values).tobytes())
    return {"fingerprint": digest.hexdigest()[:16]}


def _arrays(part: Any) -> list[NDArray[Any]]:
    """Return an array, or the columns of a table with their names, as arrays of numbers or text."""
    if part is None:
        return [np.zeros(0)]
    if not is_table(part):
        return [np.asarray(part)]
    found = [np.array([str(name) for name in part.columns])]
    for name in part.columns:
        values = part[name]
        if values.dtype.kind in "biuf":
            found.append(values.to_numpy(dtype=np.float64, na_value=np.nan))
        else:
            found += [values.isna().to_numpy(), values.astype(str).to_numpy(dtype=str)]
    return found


def fingerprints(federation: Federation) -> dict[str, str]:
    """Return the fingerprint of the data of each client that answers."""
    replies = federation.call_all(fingerprint, {}, partial=True)
    return {name: str(reply["fingerprint"]) for name, reply in replies.items()}


def describe_clients(federation: Federation) -> dict[str, dict[str, Any]]:
    """Return the description that each client gives of its data, for a run's record.

    Parameters
    ----------
    federation : Federation
        The clients.

    Returns
    -------
    dict
        For each client `quantity`, `test_quantity`, `label_counts`, `min_coalition` where its limits have one, and
        `fingerprint` (None if it did not answer).
    """
    prints = fingerprints(federation)
    return {
        name: {**{key: reply[key] for key in KEPT if key in reply}, "fingerprint": prints.get(name)}
        for name, reply in sorted(federation.described.items())
    }
