"""What both ends of a federation must agree on: the version of the messages and the names of the Flower app's parts.

    version 1   messages without a version (fedcollab before November 2026)
    version 2   every message, every answer and the app's config carry the version as an integer
    version 3   `evaluate` answers six measures; the actions `compare` and `train-folds`
    version 4   `train` and `train-folds` with masks; the actions `secure-keys` and `secure-unmask`
    version 5   the packed message stands in the same record as what it is about

Raise `PROTOCOL` whenever a coordinator and a silo of the version before could misunderstand each other.
"""

from __future__ import annotations

from fedcollab.errors import InputError

PROTOCOL = 5
UNVERSIONED = 1  # the version of a peer that sends none

WORKER_DIED = "its worker died over the message"  # what a silo answers then; it is asked again
HELLO = "hello"  # the action that asks a silo for its name; nothing is computed for it
APP_NAME = "fedcollab-federation"
SERVER_APP = "fedcollab.flower.coordinator.server_app:app"
CLIENT_APP = "fedcollab.flower.silo.client_app:app"


def version_difference(*, coordinator: int, silo: int) -> str:
    """Return the line that both ends show when their protocol versions differ.

    Parameters
    ----------
    coordinator, silo : int
        The protocol version of each side.

    Returns
    -------
    str
        A line that names both versions and says which side to upgrade.

    Examples
    --------
    >>> version_difference(coordinator=2, silo=1)
    'the coordinator has protocol version 2, the silo version 1: upgrade fedcollab at the silo'
    """
    older = "coordinator" if coordinator < silo else "silo"
    versions = f"the coordinator has protocol version {coordinator}, the silo version {silo}"
    return f"{versions}: upgrade fedcollab at the {older}"


def check_protocol(*, coordinator: int, silo: int) -> None:
    """Raise if the two ends of a federation have different protocol versions.

    Parameters
    ----------
    coordinator, silo : int
        The protocol version of each side; `UNVERSIONED` for a side that sent none.

    Raises
    ------
    InputError
        If the versions differ; the line names both and says which side to upgrade.
    """
    if coordinator != silo:
        raise InputError(version_difference(coordinator=coordinator, silo=silo))
