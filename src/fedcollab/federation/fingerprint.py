"""Whether a client's data are those of the last time: a checksum that shows equality, and nothing else."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from msgspec import Meta

from fedcollab.data.digest import digest_of_data
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
    return {"fingerprint": digest_of_data(silo.data, silo.key)[:16]}


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
