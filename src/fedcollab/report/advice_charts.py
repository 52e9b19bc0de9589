"""The pictures of an advice: expected gains with their intervals, and the weights."""

from __future__ import annotations

from typing import Any

import altair as alt

from fedcollab.report import theme
from fedcollab.report.advised import MOST_DRAWN
from fedcollab.report.charts import CRISP, NAMED, Chart, Rows, square_axis
from fedcollab.report.measured import Weights

#: colours and shapes of the two kinds of gains
KINDS = {"expected": ("#1b87c9", "circle"), "measured after training": ("#D55E00", "diamond")}


def expected_gains(rows: Rows) -> Chart:
    """Draw expected gains over training alone with their intervals, and what was measured beside them.

    Parameters
    ----------
    rows : list of dict
        As `advised.expected_rows` returns them.
    """
    count = len({row["name"] for row in rows})
    kinds = [kind for kind in KINDS if any(row["kind"] == kind for row in rows)]
    axis = alt.Axis(
        labelAngle=-90 if count > 6 else 0, labelLimit=240, labelOverlap=True, ticks=False, domain=False,
        labels=count <= MOST_DRAWN,
    )  # fmt: skip
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=alt.X("name:N", sort=alt.EncodingSortField(field="place", op="min"), axis=axis, title=None),
        color=alt.Color(
            "kind:N",
            scale=alt.Scale(domain=kinds, range=[KINDS[kind][0] for kind in kinds]),
            legend=alt.Legend(title=None) if len(kinds) > 1 else None,
        ),
        tooltip=[
            alt.Tooltip("name:N", title="Client"),
            alt.Tooltip("kind:N", title="Gain"),
            alt.Tooltip("gain:Q", title="points", format="+.1f"),
            alt.Tooltip("low:Q", title="from", format="+.1f"),
            alt.Tooltip("high:Q", title="to", format="+.1f"),
        ],
    )
    if len(kinds) > 1:
        base = base.encode(xOffset=alt.XOffset("kind:N", scale=alt.Scale(domain=kinds, paddingOuter=0.6)))
    title = "Gain over training alone (points)"
    spread = base.mark_rule(strokeWidth=2.5, opacity=0.6).encode(y=alt.Y("low:Q", title=title), y2="high:Q")
    point = base.mark_point(filled=True, opacity=1, size=90 if count <= NAMED else 35).encode(
        y=alt.Y("gain:Q", title=title),
        shape=alt.Shape(
            "kind:N",
            scale=alt.Scale(domain=kinds, range=[KINDS[kind][1] for kind in kinds]),
            legend=alt.Legend(title=None) if len(kinds) > 1 else None,
        ),
    )
    nothing = alt.Chart(alt.InlineData(values=[{"zero": 0}])).mark_rule(opacity=0.7).encode(y="zero:Q")
    return alt.layer(nothing, spread, point)


def weights(picture: Weights, *, live: bool = False) -> Chart:
    """Draw what each client's data weigh in each client's model, on one scale of colours from 0 to 1.

    Parameters
    ----------
    picture : Weights
        Names and weights.
    live : bool, default False
        Take the data from the page's script instead of holding it.
    """
    count = len(picture.names)
    values = [
        {"i": i, "j": j, "w": round(weight, 3)}
        for i, row in enumerate(picture.matrix.tolist())
        for j, weight in enumerate(row)
    ]
    data: alt.NamedData | alt.InlineData = alt.NamedData(name="weights") if live else alt.InlineData(values=values)
    side = 1 if count <= CRISP else 1.4  # drawn pixel by pixel, neighbours overlap so that no gap shines through
    named = {**square_axis(count, "names[floor(datum.value)]"), "labelOverlap": count > NAMED}
    whole: dict[str, Any] = {"domain": [0, count], "nice": False, "zero": False}
    heat = (
        alt.Chart(data)
        .transform_calculate(
            x2=f"datum.j + {side}", y2=f"datum.i + {side}", model="names[datum.i]", source="names[datum.j]"
        )
        .mark_rect(stroke=None, clip=True)
        .encode(
            x=alt.X("j:Q", scale=alt.Scale(**whole), axis=alt.Axis(**named, labelAngle=-90, title="Data of")),
            x2="x2:Q",
            y=alt.Y("i:Q", scale=alt.Scale(**whole, reverse=True), axis=alt.Axis(**named, title="Model of")),
            y2="y2:Q",
            color=alt.Color(
                "w:Q",
                scale=alt.Scale(type="pow", exponent=0.4, scheme=theme.MATRIX, domain=[0, 1], reverse=True),
                legend=alt.Legend(title="Weight", gradientLength=180),
            ),
            tooltip=[
                alt.Tooltip("model:N", title="In the model of"),
                alt.Tooltip("source:N", title="the data of"),
                alt.Tooltip("w:Q", title="weigh", format=".1%"),
            ],
        )
    )
    chart: Chart = alt.layer(heat).add_params(alt.param(name="names", value=picture.names))
    return chart
