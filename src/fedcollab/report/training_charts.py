"""Pictures of what training reached: each client's accuracy with its interval, and accuracy by round."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from fedcollab.report import theme
from fedcollab.report.charts import NAMED, Chart, Rows, client_axis


def gains(rows: Rows, count: int, score: str = "accuracy") -> Chart:
    """Draw each client's accuracy trained alone, with everyone, and in its coalition, with intervals side by side.

    Parameters
    ----------
    rows : list of dict
        One row for each client and way of training, as `gain_rows` returns them.
    count : int
        How many clients there are.
    score : str
        What is drawn: "accuracy", or what stands for it.
    """
    ways = [way for way in theme.WAYS if any(row["way"] == way for row in rows)]
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=client_axis(count), xOffset=alt.XOffset("way:N", scale=alt.Scale(domain=ways, paddingOuter=0.3))
    )
    spread = base.mark_rule(opacity=0.55).encode(
        y=alt.Y("low:Q", title=f"Test {score}", axis=alt.Axis(format=".0%"), scale=alt.Scale(zero=False)),
        y2="high:Q",
        color=_way_colour(ways),
    )
    shape = {"alone": "circle", "everyone together": "cross", "in coalitions": "diamond", "as advised": "diamond"}
    points = base.mark_point(filled=True, opacity=1, size=60 if count <= NAMED else 20).encode(
        y=alt.Y("accuracy:Q", title=f"Test {score}", axis=alt.Axis(format=".0%"), scale=alt.Scale(zero=False)),
        color=_way_colour(ways),
        shape=alt.Shape(
            "way:N", scale=alt.Scale(domain=ways, range=[shape[way] for way in ways]), legend=alt.Legend(title=None)
        ),
        tooltip=[
            alt.Tooltip("name:N", title="Client"),
            alt.Tooltip("way:N", title="Trained"),
            alt.Tooltip("accuracy:Q", title=f"{score[0].upper()}{score[1:]}", format=".1%"),
            *([alt.Tooltip(end, format=".1%") for end in ("low:Q", "high:Q")] if "low" in rows[0] else []),
        ],
    )
    return alt.layer(*([spread] if any("low" in row for row in rows) else []), points)


def curves(rows: Rows, domain: Sequence[float], *, legend: bool = True, score: str = "accuracy") -> Chart:
    """Draw the mean test accuracy of a coalition's clients by round, for every way of training.

    Parameters
    ----------
    rows : list of dict
        One row for each round and way of training.
    domain : sequence of float
        Least and greatest accuracy of the axis.
    legend : bool, default True
        Whether to draw the legend.
    score : str
        What is drawn: "accuracy", or what stands for it.
    """
    ways = [way for way in theme.WAYS if any(row["way"] == way for row in rows)]
    dash = {"alone": [2, 3], "everyone together": [7, 4], "in coalitions": [1, 0], "as advised": [1, 0]}
    chart: Chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_line(strokeWidth=2.2)
        .encode(
            x=alt.X("round:Q", title="Round", axis=alt.Axis(grid=False, tickCount=5, tickMinStep=1)),
            y=alt.Y(
                "accuracy:Q",
                title=f"Test {score}",
                axis=alt.Axis(format=".0%", tickCount=5),
                scale=alt.Scale(domain=list(domain), nice=True),
            ),
            color=_way_colour(ways, legend),
            strokeDash=alt.StrokeDash(
                "way:N",
                scale=alt.Scale(domain=ways, range=[dash[way] for way in ways]),
                legend=alt.Legend(title=None, symbolType="stroke") if legend else None,
            ),
            tooltip=[
                alt.Tooltip("round:Q", title="Round"),
                alt.Tooltip("way:N", title="Trained"),
                alt.Tooltip("accuracy:Q", title=f"{score[0].upper()}{score[1:]}", format=".1%"),
            ],
        )
    )
    return chart


def _way_colour(ways: Sequence[str], legend: bool = True) -> alt.Color:
    """Return the colours of the ways of training."""
    return alt.Color(
        "way:N",
        scale=alt.Scale(domain=list(ways), range=[theme.WAYS[way] for way in ways]),
        legend=alt.Legend(title=None) if legend else None,
    )
