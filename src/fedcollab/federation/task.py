"""What models predict, decided from the clients' descriptions of their data: a class, or a numeric target.

    "auto"            numbers with fractions mean regression, and so do whole numbers of very many values; text and
                      whole numbers of fewer values are classes
    "classification"  the labels are classes at every client
    "regression"      the labels are numbers at every client, whole ones too

A client whose target has fractions never lists its values: it sends their sum, as of a numeric column. Times until an
event (survival) would be a third task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedcollab.data.samples import looks_numeric
from fedcollab.errors import InputError, unknown
from fedcollab.tasks import TASKS
from fedcollab.wire.message import Message

#: up to so many different whole numbers look like classes, beside other clients whose numbers have fractions
FEW = 10


def check_task(task: str) -> None:
    """Check the setting `task`.

    Parameters
    ----------
    task : str
        "auto", or one of `TASKS`.

    Raises
    ------
    InputError
        If it is none of them.
    """
    if task != "auto" and task not in TASKS:
        raise InputError(unknown("task", task, ("auto", *TASKS)))


def check_numbers(task: str | None, text: Sequence[str]) -> None:
    """Check that no client has text as labels where numbers are to be predicted.

    Parameters
    ----------
    task : str or None
        The setting.
    text : sequence of str
        The clients that have text as labels.

    Raises
    ------
    InputError
        If numbers are to be predicted and there are any.
    """
    if task == "regression" and text:
        raise InputError(f"`task` (='regression') needs numbers; client `{text[0]}` has text as labels")


def decide(task: str, described: Mapping[str, Message]) -> str:
    """Return what models predict.

    Parameters
    ----------
    task : str
        The setting.
    described : mapping
        How each client described its data; `numeric` says that its labels are a numeric target.

    Raises
    ------
    InputError
        If the setting does not fit the clients' labels, or two clients contradict each other.

    Examples
    --------
    >>> counted = {"labels": [1, 2, 3], "numeric": False, "quantity": 40}
    >>> decide("auto", {"north": counted}), decide("regression", {"north": counted})
    ('classification', 'regression')
    """
    numeric = [name for name, reply in described.items() if reply.get("numeric")]
    text = [name for name, reply in described.items() if reply["labels"] and isinstance(reply["labels"][0], str)]
    if task == "classification" and numeric:
        raise InputError(f"`task` (='classification') needs classes; client `{numeric[0]}` has numbers with fractions")
    check_numbers(task, text)
    if task != "auto":
        return task
    if not numeric:
        values = {label for reply in described.values() for label in reply["labels"]}
        rows = sum(int(reply["quantity"]) for reply in described.values())
        return "regression" if not text and looks_numeric(len(values), rows) else "classification"
    if text:
        raise InputError(
            f"client `{numeric[0]}` has a numeric target and client `{text[0]}` has text as labels; expected one kind"
        )
    few = [name for name, reply in described.items() if not reply.get("numeric") and len(reply["labels"]) <= FEW]
    if few:
        raise InputError(
            f"client `{numeric[0]}` has numbers with fractions as labels and client `{few[0]}` only "
            f"{len(described[few[0]]['labels'])} whole numbers; `task` ('regression') would take all as numbers"
        )
    return "regression"
