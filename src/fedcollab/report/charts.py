"""Pictures of distances, coalitions and clients: functions from values to Altair charts.

They are used on the page, in notebooks and as figures. What training reached is drawn in `training_charts`, what was
advised in `advice_charts`.

Charts that the page's slider moves take their data by name (`cells`, `blocks`, `bars`, `totals`) or read a parameter
(`order`, `rank`, `current`); everywhere else the same functions get values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.distances import Distances
from fedcollab.errors import InputError
from fedcollab.report import theme

try:
    import altair as alt
except ImportError:
    raise InputError("the pictures need altair: pip install 'fedcollab[report]'") from None

Chart = alt.Chart | alt.LayerChart | alt.FacetChart
Rows = list[dict[str, Any]]
#: more clients than this get no name on an axis: hovering tells it
NAMED = 60
#: beyond this many clients the page draws a matrix as pixels, not as shapes
CRISP = 50


def ordering(assignment: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """Return the clients (positions) sorted by coalition, and each client's place in that order."""
    order = np.argsort(assignment, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return order.tolist(), rank.tolist()


def blocks(assignment: NDArray[np.int64]) -> Rows:
    """Return where each coalition begins and ends in the order of `ordering`."""
    ends = np.cumsum(np.bincount(assignment))
    return [
        {"start": int(end - size), "end": int(end), "coalition": label + 1}
        for label, (end, size) in enumerate(zip(ends, np.bincount(assignment), strict=True))
    ]


def label_size(count: int) -> int:
    """Return the size of names beside a square picture of this many clients, so that none covers another.

    Examples
    --------
    >>> label_size(8), label_size(40), label_size(60)
    (10, 9, 7)
    """
    return max(7, min(10, 380 // count)) if count else 10


def square_axis(count: int, label: str) -> dict[str, Any]:
    """Return the settings of an axis with a place for each client, which is named where there is room.

    Parameters
    ----------
    count : int
        How many clients.
    label : str
        The Vega expression of a client's name.
    """
    return {
        "values": [position + 0.5 for position in range(count)] if count <= NAMED else [],
        "tickCount": max(count, 1),  # else every so many are left out
        "labelExpr": label,
        "labelLimit": 110,
        "labelFontSize": label_size(count),
        "grid": False,
        "ticks": False,
        "domain": False,
    }


def cells(distances: Distances) -> Rows:
    """Return one row for each pair of clients: positions, distance, and its standard error where that is known."""
    matrix, wide = distances.matrix, distances.stderr
    rows = []
    for i in range(len(matrix)):
        for j in range(len(matrix)):
            row: dict[str, Any] = {"i": i, "j": j, "d": round(float(matrix[i, j]), 4)}
            if not distances.observed[i, j]:
                row["d"] = None
            elif wide is not None and i != j:
                row["e"] = round(float(wide[i, j]), 4)
            rows.append(row)
    return rows


def matrix(
    distances: Distances,
    assignment: NDArray[np.int64] | None = None,
    *,
    live: bool = False,
    field: str = "d",
) -> Chart:
    """Draw the distance matrix, ordered by coalition, with a frame around each coalition.

    Parameters
    ----------
    distances : Distances
        The distances.
    assignment : array of int, optional
        Each client's coalition; without it, all are in one.
    live : bool, default False
        Take the data from the page's script instead of holding it.
    field : {"d", "e"}
        Colour by distance or by standard error.
    """
    count = len(distances.names)
    assignment = np.zeros(count, dtype=np.int64) if assignment is None else assignment
    order, rank = ordering(assignment)
    what = "Distance" if field == "d" else "Standard error"
    data: alt.NamedData | alt.InlineData = (
        alt.NamedData(name="cells") if live else alt.InlineData(values=cells(distances))
    )
    frames = alt.NamedData(name="blocks") if live else alt.InlineData(values=blocks(assignment))
    side = 1 if count <= CRISP else 1.4  # drawn pixel by pixel, neighbours overlap so that no gap shines through
    named = {**square_axis(count, "names[order[floor(datum.value)]]"), "title": None}
    place = alt.Scale(domain=[0, count], nice=False, zero=False)
    down = alt.Scale(domain=[0, count], nice=False, zero=False, reverse=True)
    colour = alt.Scale(scheme=theme.MATRIX, domain=[0, 1], reverse=True)  # one scale in every picture of every run
    heat = (
        alt.Chart(data)
        .transform_calculate(
            x="rank[datum.j]",
            y="rank[datum.i]",
            x2=f"datum.x + {side}",
            y2=f"datum.y + {side}",
            first="names[datum.i]",
            second="names[datum.j]",
            distance="isValid(datum.d) ? format(datum.d, '.3f') : 'not measured'",
            uncertainty="isValid(datum.e) ? '± ' + format(1.645 * datum.e, '.3f') + ' (90 % interval)' : 'not known'",
        )
        .transform_filter("datum.i != datum.j" if field == "e" else "isValid(datum.i)")
        .mark_rect(invalid=None, stroke=None, clip=True)
        .encode(
            x=alt.X("x:Q", scale=place, axis=alt.Axis(**named, labelAngle=-90, labelOverlap=count > NAMED)),
            x2="x2:Q",
            y=alt.Y("y:Q", scale=down, axis=alt.Axis(**named, labelOverlap=count > NAMED)),
            y2="y2:Q",
            color=alt.condition(
                f"isValid(datum.{field})",
                alt.Color(f"{field}:Q", scale=colour, legend=alt.Legend(title=what, gradientLength=180)),
                alt.value(theme.UNMEASURED),
            ),
            tooltip=[
                alt.Tooltip("first:N", title="Client"),
                alt.Tooltip("second:N", title="and"),
                alt.Tooltip("distance:N", title="Distance"),
                alt.Tooltip("uncertainty:N", title="Uncertainty"),
            ],
        )
    )
    frame = (
        alt.Chart(frames)
        .mark_rect(filled=False, color=theme.FRAME, strokeWidth=2.5, tooltip=False)
        .encode(x=alt.X("start:Q", scale=place), x2="end:Q", y=alt.Y("start:Q", scale=down), y2="end:Q")
    )
    layers = [heat, frame]
    if count > NAMED:  # clients have no names at the axes: coalitions have theirs, where there is room for it
        layers.append(_block_names(frames, count, place, down))
    given = {"names": list(distances.names), "order": order, "rank": rank}
    return alt.layer(*layers).add_params(*(alt.param(name=key, value=value) for key, value in given.items()))


def _block_names(frames: alt.NamedData | alt.InlineData, count: int, place: alt.Scale, down: alt.Scale) -> Chart:
    """Draw the name and the size of each coalition in its frame, for those that have a twelfth of the side or more."""
    named = (
        alt.Chart(frames)
        .transform_filter(f"datum.end - datum.start >= {count / 12:g}")
        .transform_calculate(
            middle="(datum.start + datum.end) / 2",
            words="'coalition ' + datum.coalition + ': ' + (datum.end - datum.start) + ' clients'",
        )
        .encode(x=alt.X("middle:Q", scale=place), y=alt.Y("middle:Q", scale=down), text="words:N")
    )
    bold: dict[str, Any] = {"fontSize": 12, "fontWeight": "bold", "tooltip": False}
    return alt.layer(named.mark_text(stroke="white", strokeWidth=3, strokeOpacity=0.8, **bold), named.mark_text(**bold))


def path(segments: Sequence[Mapping[str, Any]], suggested: int, chosen: int | None, current: int) -> Chart:
    """Draw how many coalitions come out for every C, with the suggested C marked.

    Parameters
    ----------
    segments : sequence of mappings
        The segments of the path, as `slider` returns them.
    suggested : int
        The position of the segment that is suggested.
    chosen : int or None
        The position of the segment with the run's own C, if it is among them.
    current : int
        The position of the segment that is highlighted first.
    """
    rows: Rows = []
    for index, segment in enumerate(segments):
        rows.append(
            {
                "index": index,
                "low": segment["left"],
                "high": segment["right"],
                "C": segment["C"],
                "count": segment["count"],
                "range": segment["words"],
                "mark": "suggested C" if index == suggested else ("C of this run" if index == chosen else None),
            }
        )
    scale = alt.Scale(type="log", domain=[rows[0]["low"], rows[-1]["high"]], nice=False)
    x = alt.X("low:Q", scale=scale, axis=alt.Axis(title="C (logarithmic)", grid=False, format="~g", tickCount=6))
    y = alt.Y(
        "count:Q",
        title="Coalitions",
        axis=alt.Axis(tickMinStep=1, format="d"),
        scale=alt.Scale(domainMin=0, type="symlog" if max(row["count"] for row in rows) > 30 else "linear"),
    )
    base = alt.Chart(alt.InlineData(values=rows))
    tips = [alt.Tooltip("range:N", title="C"), alt.Tooltip("count:Q", title="Coalitions")]
    band = (
        base.transform_filter("datum.index == current")
        .mark_rect(color=theme.COLOURS["in coalitions"], opacity=0.28)
        .encode(x=x, x2="high:Q")
    )
    steps = base.mark_bar(height=5, color=theme.COLOURS["in coalitions"], cornerRadius=2, cursor="pointer").encode(
        x=x, x2="high:Q", y=y, tooltip=tips
    )
    marked = base.transform_filter("datum.mark != null")
    point = marked.mark_point(shape="diamond", size=110, filled=True, color="#D55E00", opacity=1).encode(
        x=alt.X("C:Q", scale=scale), y=y
    )
    label = marked.mark_text(dy=-13, fontWeight=600).encode(x=alt.X("C:Q", scale=scale), y=y, text="mark:N")
    return alt.layer(band, steps, point, label).add_params(alt.param(name="current", value=current))


def bar_rows(
    names: Sequence[str], assignment: NDArray[np.int64], terms: NDArray[np.float64], alone: NDArray[np.float64]
) -> Rows:
    """Return each client's bound in its coalition, in two parts, and alone, in the order of the coalitions.

    Parameters
    ----------
    names : sequence of str
        The clients.
    assignment : array of int
        Each client's coalition.
    terms : array
        N x 2: each client's two parts of the bound, too little data and unlike partners.
    alone : array
        Each client's bound alone.
    """
    return [
        {
            "name": names[client],
            "place": place,
            "coalition": int(assignment[client]) + 1,
            "little": float(terms[client, 0]),
            "unlike": float(terms[client, 1]),
            "alone": float(alone[client]),
        }
        for place, client in enumerate(ordering(assignment)[0])
    ]


def bounds(rows: Rows | None, count: int) -> Chart:
    """Draw each client's bound as two stacked parts, and a tick where it would be alone.

    Parameters
    ----------
    rows : list of dict or None
        As `bar_rows` returns them; None takes the data from the page's script.
    count : int
        How many clients there are.
    """
    data = alt.NamedData(name="bars") if rows is None else alt.InlineData(values=rows)
    x = client_axis(count)
    tips = [
        alt.Tooltip("name:N", title="Client"),
        alt.Tooltip("coalition:Q", title="Coalition"),
        alt.Tooltip("little:Q", title="too little data", format=".3f"),
        alt.Tooltip("unlike:Q", title="unlike partners", format=".3f"),
        alt.Tooltip("alone:Q", title="alone it would be", format=".3f"),
    ]
    base = alt.Chart(data).transform_calculate(top="datum.little + datum.unlike")
    parts = base.transform_fold(["little", "unlike"], as_=["key", "value"]).transform_calculate(
        part="datum.key == 'little' ? 'too little data' : 'unlike partners'"
    )
    bars = parts.mark_bar(width={"band": 0.8 if count <= NAMED else 1}).encode(
        x=x,
        y=alt.Y("value:Q", title="Error bound (lower is better)"),
        color=alt.Color(
            "part:N",
            scale=alt.Scale(domain=list(theme.PARTS), range=list(theme.PARTS.values())),
            legend=alt.Legend(title=None),
        ),
        order=alt.Order("key:O"),
        tooltip=tips,
    )
    tick = base.mark_tick(thickness=2.5, width={"band": 0.8 if count <= NAMED else 1}).encode(
        x=x, y=alt.Y("alone:Q"), tooltip=tips
    )
    return alt.layer(bars, tick)


def totals(rows: Rows | None) -> Chart:
    """Draw the objective of the coalitions shown, of everyone together and of all alone, at the same C.

    Parameters
    ----------
    rows : list of dict or None
        One row for each; None takes the data from the page's script.
    """
    data = alt.NamedData(name="totals") if rows is None else alt.InlineData(values=rows)
    base = alt.Chart(data).encode(
        y=alt.Y(
            "way:N", title=None, sort=None, axis=alt.Axis(ticks=False, domain=False, labelLimit=150, labelPadding=6)
        ),
        x=alt.X("value:Q", title=None, axis=None),
    )
    room = base.transform_calculate(far="2 * datum.value").mark_point(opacity=0, tooltip=False).encode(x="far:Q")
    bar = base.mark_bar(cornerRadiusEnd=3, height=18).encode(
        color=alt.condition("datum.shown", alt.value(theme.COLOURS["in coalitions"]), alt.value("#8a8f98"))
    )
    text = base.mark_text(align="left", dx=5, fontWeight=600).encode(text="label:N")
    return alt.layer(bar, text, room)


def spread(rows: Rows) -> Chart:
    """Draw how many pairs lie at each distance, inside coalitions and between them."""
    kinds = ["in the same coalition", "in different coalitions", "all pairs"]
    chart: Chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_bar(stroke=None, binSpacing=1)
        .encode(
            x=alt.X("low:Q", bin="binned", title="Distance (0: alike, 1: nothing in common)"),
            x2="high:Q",
            y=alt.Y("pairs:Q", title="Pairs of clients", axis=alt.Axis(tickMinStep=1)),
            color=alt.Color(
                "kind:N",
                scale=alt.Scale(
                    domain=[kind for kind in kinds if any(row["kind"] == kind for row in rows)],
                    range=["#009E73", "#8a8f98"] if len({row["kind"] for row in rows}) > 1 else ["#8a8f98"],
                ),
                legend=alt.Legend(title=None),
            ),
            tooltip=[
                alt.Tooltip("kind:N", title="Pairs"),
                alt.Tooltip("low:Q", title="from", format=".2f"),
                alt.Tooltip("high:Q", title="to", format=".2f"),
                alt.Tooltip("pairs:Q", title="how many"),
            ],
        )
    )
    return chart


def quantities(rows: Rows) -> Chart:
    """Draw the training samples of each client, in the order of the coalitions."""
    values, count = [row["samples"] for row in rows], len(rows)
    wide = max(values) > 50 * min(values)
    chart: Chart = (
        alt.Chart(alt.InlineData(values=rows))
        .transform_calculate(floor="1" if wide else "0")
        .mark_bar(color=theme.COLOURS["in coalitions"], width={"band": 0.8 if count <= NAMED else 1})
        .encode(
            x=client_axis(count),
            y=alt.Y(
                "samples:Q",
                title="Training samples" + (" (logarithmic)" if wide else ""),
                scale=alt.Scale(type="log", domainMin=1) if wide else alt.Scale(),
                axis=alt.Axis(
                    format="~s", tickCount=4, values=[10**power for power in range(10)] if wide else alt.Undefined
                ),
            ),
            y2="floor:Q",
            tooltip=[
                alt.Tooltip("name:N", title="Client"),
                alt.Tooltip("samples:Q", title="Training samples", format=","),
            ],
        )
    )
    return chart


def label_mix(rows: Rows, count: int, labels: Sequence[str]) -> Chart:
    """Draw which share of each client's samples has which label.

    Parameters
    ----------
    rows : list of dict
        One row for each client and label, as `label_rows` returns them.
    count : int
        How many clients there are.
    labels : sequence of str
        The labels, in the order in which they are drawn.
    """
    chart: Chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_rect(stroke=None, color=theme.COLOURS["in coalitions"])
        .encode(
            x=client_axis(count),
            y=alt.Y(
                "label:N", title="Label", sort=list(labels), axis=alt.Axis(ticks=False, domain=False, labelLimit=110)
            ),
            opacity=alt.Opacity(
                "share:Q",
                scale=alt.Scale(domainMin=0, range=[0.04, 1]),
                legend=alt.Legend(title="Share of its samples", format=".0%", titleLimit=300),
            ),
            tooltip=[
                alt.Tooltip("name:N", title="Client"),
                alt.Tooltip("label:N", title="Label"),
                alt.Tooltip("share:Q", title="Share", format=".1%"),
            ],
        )
    )
    return chart


def client_axis(count: int) -> alt.X:
    """Return an axis with clients side by side in the order of `place`, named where there is room.

    Parameters
    ----------
    count : int
        How many clients there are; more than `NAMED` get no names.
    """
    axis = alt.Axis(
        labelAngle=-90 if count > 6 else 0,
        labelLimit=110,
        labelFontSize=10 if count <= 40 else 8,
        labelOverlap=False,
        ticks=False,
        domain=False,
        labels=count <= NAMED,
    )
    return alt.X("name:N", sort=alt.EncodingSortField(field="place", op="min"), axis=axis, title=None)
