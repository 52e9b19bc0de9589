"""`inspect`: ask every client once what its data are like, and list all that is doubtful about them."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import replace

from fedcollab.data.client import list_clients
from fedcollab.errors import number
from fedcollab.federation import Clients, Federation
from fedcollab.federation.task import check_numbers, check_task
from fedcollab.inspection.column import Profile
from fedcollab.inspection.columns import column_findings
from fedcollab.inspection.labels import label_findings
from fedcollab.inspection.profile import look
from fedcollab.inspection.result import Finding, Inspection, ordered
from fedcollab.inspection.tables import table_findings
from fedcollab.inspection.target import target_findings
from fedcollab.wire import open_runtime
from fedcollab.wire.message import Message
from fedcollab.wire.runtime import Runtime

#: kinds that no knowledge about a column settles: the tables do not fit together
STRUCTURE = ("column-missing", "column-extra", "column-kind", "column-order", "shape", "label-kind")
#: of a client's reply, what an inspection keeps
KEPT = tuple(Profile.__annotations__)


def inspect(
    clients: Clients,
    *,
    trust: Iterable[str] = (),
    test_share: float = 0.2,
    seed: int = 0,
    task: str | None = None,
    runtime: str | None = None,
    device: str | None = None,
) -> Inspection:
    """Look for flaws in the clients' data that would spoil the advice, from aggregates alone.

    Every client is asked once. It answers with counts, means and deviations of its training rows, and a checksum;
    numbers that are made of fewer rows than its limit stay with it. Clients may have different columns.

    Parameters
    ----------
    clients : iterable of ClientData, mapping, Runtime or Federation
        The clients; a mapping is from names to `ClientData` or `(x, y)`.
    trust : iterable of str
        Columns that are known to be right ("label": the labels): what is found about them is only mentioned.
    test_share : float
        Hold-out share of clients without a test split, as in the run that follows.
    seed : int
        The seed that the hold-out is drawn from.
    task : str, optional
        "regression": whole numbers are a numeric target too; by default numbers with fractions are one.
    runtime : str, optional
        Where the client side runs: "vectorised" (default), "wire", "flower-simulation".
    device : str, optional
        Where models run; nothing here needs one.

    Returns
    -------
    Inspection
        Its `.findings`, the gravest first.

    Raises
    ------
    Paused
        If too few clients answered.

    Examples
    --------
    >>> from fedcollab import ClientData
    >>> x = [[float(row), float(row * row % 7)] for row in range(40)]
    >>> north = ClientData("north", x, ["yes", "no"] * 20)
    >>> south = ClientData("south", [[a + 0.5, b] for a, b in x], ["Yes", "no"] * 20)
    >>> [(found.client, found.kind) for found in inspect([north, south]).errors]
    [('south', 'label-spelling')]
    """
    number("test_share", test_share, above=0, at_most=0.9)
    if isinstance(clients, Federation):
        carrier: Runtime = clients.runtime
        names, test_share, seed = clients.names, clients.schema.test_share, clients.schema.seed
        task = "regression" if clients.schema.task == "regression" else task
    else:
        given = list_clients(clients)
        name = runtime or "vectorised"
        carrier = given if isinstance(given, Runtime) else open_runtime(given, name, device or "cpu")
        names = carrier.names
    message: Message = {"test_share": float(test_share), "seed": seed, "key": secrets.token_hex(16)}
    if task not in (None, "auto"):
        check_task(str(task))
        message["task"] = task
    replies = carrier.call(look, dict.fromkeys(names, message), partial=True)
    silent = [
        Finding(name, None, "no-answer", "warning", f"it did not answer the data check: {why}.", "")
        for name, why in {**carrier.missing, **carrier.absent}.items()
    ]
    check_numbers(task, [name for name, reply in replies.items() if reply["label_kind"] == "text"])
    about_labels = [*label_findings(replies), *target_findings(replies)]
    found = [*about_labels, *column_findings(replies), *table_findings(replies), *silent]
    known = set(trust)
    settled = [
        replace(each, severity="info") if each.column in known and each.kind not in STRUCTURE else each
        for each in found
    ]
    profiles = {name: {key: reply[key] for key in KEPT if key in reply} for name, reply in replies.items()}
    return Inspection(ordered(settled), tuple(replies), profiles)


def renewed(known: Inspection, federation: Federation, names: Iterable[str]) -> Inspection:
    """Return an inspection in which some clients' profiles are as they are now; findings stay those of the day.

    Parameters
    ----------
    known : Inspection
        What was found when the run began.
    federation : Federation
        The clients; those that are not among `names` are asked nothing.
    names : iterable of str
        Clients that are new, or whose data changed.

    Returns
    -------
    Inspection
        With the columns' counts and moments of these clients, for `differences`.

    Raises
    ------
    Paused
        If none of them answered.
    """
    fresh = inspect(federation.part(names))
    everyone = dict.fromkeys((*known.names, *fresh.names))
    return replace(known, names=tuple(sorted(everyone)), profiles={**known.profiles, **fresh.profiles})
