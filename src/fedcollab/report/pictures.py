"""Every picture that a run can show, by name: on the page (moved by its script) and as figures for papers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedcollab.report import advice_charts, charts, trained, training_charts
from fedcollab.report.advised import MOST_DRAWN, expected_rows, groups_of
from fedcollab.report.differences import (
    between_coalitions,
    label_rows,
    many_clients,
    quantity_rows,
    spread_rows,
)
from fedcollab.report.measured import weight_picture
from fedcollab.report.run import RunContents

if TYPE_CHECKING:
    from fedcollab.advice.result import Advice
    from fedcollab.coalitions import Collaboration


def pictures(run: RunContents, moved: dict[str, Any] | None, *, live: bool) -> dict[str, charts.Chart]:
    """Return every chart that a run can show, by name.

    Parameters
    ----------
    run : RunContents
        The run.
    moved : dict or None
        The data of the slider over C, where the run has a path.
    live : bool
        Whether the charts are for the page, whose script gives them their data.
    """
    count = len(run.names)
    labels = np.zeros(count, dtype=np.int64) if run.collaboration is None else run.collaboration.assignment
    order, rank = charts.ordering(labels)
    place = {run.names[client]: rank[client] for client in order}
    made: dict[str, charts.Chart] = {}
    if run.advice is not None:
        made.update(_advised(run, run.advice, place, live=live))
    if moved is not None:
        start = moved["suggested"] if moved["chosen"] is None else moved["chosen"]
        made["path"] = charts.path(moved["segments"], moved["suggested"], moved["chosen"], start).properties(height=150)
    crowded = live and many_clients(run)
    if live and moved is not None:
        if not crowded:
            made["matrix"] = charts.matrix(run.distances, labels, live=True)
        made["bounds"] = charts.bounds(None, min(count, MOST_DRAWN)).properties(height=260)
        made["totals"] = charts.totals(None).properties(height=90)
    elif not live:
        made["matrix"] = charts.matrix(run.distances, labels)
        if run.collaboration is not None:
            bars = _in_groups(run, _bars(run.names, run.collaboration), ("little", "unlike", "alone"))
            made["bounds"] = charts.bounds(bars, _drawn(run)).properties(height=260)
    if crowded:
        made["matrix-fixed"] = charts.matrix(between_coalitions(run.distances, labels))
    elif live and moved is None:
        made["matrix-fixed"] = charts.matrix(run.distances, labels, live=True)
    elif run.distances.stderr is not None:
        made["matrix-fixed"] = charts.matrix(run.distances, labels, live=live, field="e")
    made["spread"] = charts.spread(spread_rows(run)).properties(height=240)
    samples = _in_groups(run, quantity_rows(run, place), ("samples",))
    made["quantities"] = charts.quantities(samples).properties(height=220)
    shares, shown = label_rows(run, place)
    if shares:
        mixes = _in_groups(run, shares, ("share",), by="label")
        height = max(160, min(420, 16 * len(shown)))
        made["labels"] = charts.label_mix(mixes, _drawn(run), shown).properties(height=height)
    if run.results:
        reached = _in_groups(run, trained.gain_rows(run, place), ("accuracy", "low", "high"), by="way")
        made["gains"] = training_charts.gains(reached, _drawn(run), run.task.score).properties(height=300)
        curves = trained.curve_rows(run)
        for picture in curves:
            chart = training_charts.curves(
                picture["rows"], trained.domain(curves), legend=not live, score=run.task.score
            ).properties(height=190)
            made[f"curve-{picture['coalition']}"] = chart
    return made


def _drawn(run: RunContents) -> int:
    """Return how many clients, or groups of clients, stand side by side in a picture."""
    return len(run.names) if len(run.names) <= MOST_DRAWN else len(groups_of(run))


def _in_groups(run: RunContents, rows: charts.Rows, measured: tuple[str, ...], by: str | None = None) -> charts.Rows:
    """Return rows of clients as they are, or means over groups where there are too many clients to name.

    Parameters
    ----------
    run : RunContents
        The run.
    rows : list of dict
        One row for each client (and value of `by`).
    measured : tuple of str
        The fields to average.
    by : str, optional
        A field whose values are kept apart.
    """
    if len(run.names) <= MOST_DRAWN:
        return rows
    made: charts.Rows = []
    for place, (label, members) in enumerate(groups_of(run).items()):
        inside = [row for row in rows if row["name"] in set(members)]
        for kind in dict.fromkeys(row.get(by) for row in inside) if by else [None]:
            found = [row for row in inside if by is None or row[by] == kind]
            row: dict[str, Any] = {"name": label, "place": place, **({by: kind} if by else {})}
            if found and "coalition" in found[0]:
                row["coalition"] = found[0]["coalition"]
            for key in measured:
                values = [each[key] for each in found if key in each]
                if values:
                    row[key] = round(float(np.mean(values)), 4)
            made.append(row)
    return made


def _advised(run: RunContents, advice: Advice, place: dict[str, int], *, live: bool) -> dict[str, charts.Chart]:
    """Return the charts of an advice that have something to show."""
    made: dict[str, charts.Chart] = {}
    rows = expected_rows(run, advice, place)
    if rows:
        made["expected"] = advice_charts.expected_gains(rows).properties(height=200)
    picture = weight_picture(run, advice)
    if picture is not None:
        made["weights"] = advice_charts.weights(picture, live=live and not many_clients(run))
    return made


def _bars(names: tuple[str, ...], collaboration: Collaboration) -> charts.Rows:
    """Return the rows of the chart of bounds."""
    alone = collaboration.C / np.sqrt(collaboration.quantities)
    return charts.bar_rows(names, collaboration.assignment, collaboration.terms, alone)
