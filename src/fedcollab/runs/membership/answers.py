"""What a change of a run needs of its clients: that they are there, that pairs were measured, that training was done.

Each is refused before anything is written, so that the same command goes on when the clients answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedcollab.coalitions.explain import names_in_words
from fedcollab.distances import Distances
from fedcollab.errors import InputError, Paused
from fedcollab.federation import Federation
from fedcollab.training import TrainingResult

AGAIN = "nothing is changed: give the same command when it answers"


def require_clients(federation: Federation, names: Iterable[str], hint: str) -> None:
    """Check that a federation has these clients.

    Parameters
    ----------
    federation : Federation
        The clients that are there.
    names : iterable of str
        The clients that are needed.
    hint : str
        What to do about one that was not given, for the error message.

    Raises
    ------
    InputError
        If one was not given.
    Paused
        If one is known and does not answer.
    """
    absent = {**federation.runtime.missing, **federation.left_out}
    for name in names:
        if name in federation.names:
            continue
        if name in absent:
            raise Paused(f"{name!r} is not there ({absent[name]}); {AGAIN}")
        raise InputError(f"`clients` lacks {name!r}, {hint}")


def require_measured(row: Distances, name: str) -> None:
    """Check that a client's distances to all others were measured.

    Parameters
    ----------
    row : Distances
        What `distances.measure` returned.
    name : str
        The client.

    Raises
    ------
    Paused
        If one was not.
    """
    seen = row.observed[row.index(name)]
    unseen = [other for other, observed in zip(row.names, seen, strict=True) if not observed]
    if unseen:
        whom = names_in_words(tuple(unseen), None)
        raise Paused(f"the distance of {name!r} to {whom} was not measured; {AGAIN}")


def require_trained(before: TrainingResult | None, after: TrainingResult | None, name: str) -> None:
    """Check that a newcomer was in a round of the training of its coalition, which goes on without members that fail.

    Parameters
    ----------
    before, after : TrainingResult or None
        The training in coalitions before it came and with it; None where nothing was trained.
    name : str
        The newcomer.

    Raises
    ------
    Paused
        If it took no part.
    """
    if before is None or after is None:
        return
    rows: Iterable[Mapping[str, object]] = (row for row in after.history if row["client"] == name)
    if any(row.get("train_loss") is not None for row in rows):
        return
    why = [text for _, client, text in after.failures[len(before.failures) :] if client == name]
    raise Paused(f"{name!r} took no part in training ({why[-1] if why else 'it did not answer'}); {AGAIN}")
