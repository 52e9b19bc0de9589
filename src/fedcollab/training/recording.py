"""What a training records as it goes: rows of the history, the file that they are streamed to, and what was sent."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fedcollab.files import write_bytes
from fedcollab.training.checkpoint import Snapshot
from fedcollab.training.history import History
from fedcollab.training.rounds import Grouping, Round
from fedcollab.training.scores import SCORES
from fedcollab.training.session import Measures, Session
from fedcollab.wire.runtime import Runtime


def rows_of_round(session: Session, outcome: Round) -> list[dict[str, Any]]:
    """Return one row of the history for each client that was trained or evaluated in the round.

    Parameters
    ----------
    session : Session
        The training.
    outcome : Round
        What the round left.
    """
    rows, measures = [], SCORES[session.federation.schema.task].measures
    for name in session.names:
        if name not in outcome.losses and name not in outcome.evaluation.measures:
            continue
        row: dict[str, Any] = {"round": outcome.number, "client": name, "coalition": session.assignment[name]}
        row["train_loss"] = outcome.losses.get(name)
        for prefix, source in (("", outcome.evaluation.measures), ("personal_", outcome.evaluation.personal)):
            if name in source:
                row |= {f"{prefix}{key}": float(v) for key, v in zip(measures, source[name], strict=True)}
        rows.append(row)
    return rows


def by_measure(measures: Measures, names: Sequence[str], kinds: Sequence[str]) -> dict[str, Any]:
    """Return measures by client as one array for each kind, in the order of `names`; NaN for absent clients.

    Parameters
    ----------
    measures : dict of arrays
        The measures of each client that answered.
    names : sequence of str
        All clients.
    kinds : sequence of str
        What the measures are, in order.
    """
    missing = np.full(len(kinds), np.nan)
    table = np.stack([measures.get(name, missing) for name in names])
    return {key: table[:, position] for position, key in enumerate(kinds)}


def open_stream(run_dir: str | Path | None, history: History, stack: ExitStack) -> BinaryIO | None:
    """Open the file that rounds are appended to, after writing the rounds before the one that training goes on from.

    Parameters
    ----------
    run_dir : str or Path or None
        The folder; None where nothing is written.
    history : History
        The rounds before.
    stack : ExitStack
        Closes the file.
    """
    if run_dir is None:
        return None
    path = Path(run_dir) / "training.jsonl"
    write_bytes(path, history.lines())
    return stack.enter_context(path.open("ab"))


def history_before(folder: Path, resumed: Snapshot | None) -> History:
    """Read the rounds up to the one that training goes on from.

    Parameters
    ----------
    folder : Path
        Where they were streamed to.
    resumed : Snapshot or None
        The round to go on from; None where training starts anew.
    """
    path = folder / "training.jsonl"
    if resumed is None or not path.exists():
        return History()
    return History([row for row in History.read(path) if row["round"] <= resumed.number])


def traffic(runtime: Runtime) -> tuple[int, int, int]:
    """Return a runtime's calls, bytes to clients and bytes from clients so far."""
    cost = runtime.cost
    return cost.rounds, sum(cost.down.values()), sum(cost.up.values())


def traffic_between(before: tuple[int, int, int], after: tuple[int, int, int]) -> dict[str, int]:
    """Return the calls and bytes between two readings of `traffic`, by name."""
    keys = ("calls", "bytes_down", "bytes_up")
    return {key: late - early for key, early, late in zip(keys, before, after, strict=True)}


def distances_in_order(grouping: Grouping, ordered: Sequence[str], names: Sequence[str]) -> Any:
    """Return the grouping's distances in another order of the clients, or None if it has none.

    Parameters
    ----------
    grouping : Grouping
        Who is in which coalition.
    ordered : sequence of str
        The clients in the order of the grouping's distances.
    names : sequence of str
        The clients in the order that is wanted.
    """
    if grouping.distances is None:
        return None
    rows = [list(ordered).index(name) for name in names]
    return grouping.distances[np.ix_(rows, rows)]
