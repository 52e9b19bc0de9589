"""The pictures of the paper's figures, as Altair charts in the colours of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from fedcollab.report import theme

Rows = list[dict[str, Any]]
#: ten labels in ten colours that also differ in lightness
TEN = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#8a8f98", "#000000", "#7b3fa0")
DISTANCE = alt.Scale(scheme=theme.MATRIX, reverse=True)
TOGETHER = {"alone": theme.COLOURS["alone"], "together": theme.COLOURS["everyone together"]}


def label_bars(counts: Sequence[Sequence[int]]) -> Any:
    """Draw the samples of each label, stacked, one bar a client; large and small clients with a scale of their own."""
    half = len(counts) // 2
    parts = []
    for title, first, last in (("Large clients", 0, half), ("Small clients", half, len(counts))):
        rows = [
            {"client": client, "label": label, "samples": count}
            for client in range(first, last)
            for label, count in enumerate(counts[client])
            if count
        ]
        chart = (
            alt.Chart(alt.InlineData(values=rows), title=title)
            .mark_bar()
            .encode(
                x=alt.X("client:O", title="Client", axis=alt.Axis(labelAngle=0)),
                y=alt.Y("sum(samples):Q", title="Training samples"),
                color=alt.Color("label:N", title="Label", scale=alt.Scale(domain=list(range(10)), range=list(TEN))),
                order=alt.Order("label:O"),
            )
            .properties(width=300, height=220)
        )
        parts.append(chart)
    return alt.hconcat(*parts)


def permutations(tables: Sequence[Sequence[int]]) -> Any:
    """Draw the new index of each label, one row a type."""
    rows = [
        {"type": f"type {kind} (clients {5 * kind}-{5 * kind + 4})", "label": label, "index": index}
        for kind, table in enumerate(tables)
        for label, index in enumerate(table)
    ]
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=alt.X("label:O", title="Label in the data set", axis=alt.Axis(labelAngle=0)), y=alt.Y("type:N", title=None)
    )
    cells = base.mark_rect(stroke="white").encode(
        color=alt.Color("index:Q", scale=alt.Scale(scheme=theme.MATRIX), legend=None)
    )
    dark = alt.condition("datum.index < 11", alt.value("white"), alt.value("black"))
    return alt.layer(cells, base.mark_text().encode(text="index:Q", color=dark)).properties(width=620, height=130)


def two_panels(rows: Rows) -> Any:
    """Draw the accuracy of the local and of the global model, by distance and by quantity."""
    parts = []
    for panel, title in (("distance", "(a) Distance"), ("quantity", "(b) Samples of each client")):
        mine = [row for row in rows if row["panel"] == panel]
        scale = alt.Scale(type="log") if panel == "quantity" else alt.Scale()
        values = sorted({row["value"] for row in mine})
        chart = (
            alt.Chart(alt.InlineData(values=mine))
            .mark_line(point=True, strokeWidth=2.2)
            .encode(
                x=alt.X("value:Q", title=title, scale=scale, axis=alt.Axis(values=values, grid=False)),
                y=_accuracy(),
                color=_ways(TOGETHER),
                strokeDash=alt.StrokeDash("way:N", legend=None),
            )
            .properties(width=300, height=230)
        )
        parts.append(chart)
    return alt.hconcat(*parts)


def matrices(found: Mapping[str, Any]) -> Any:
    """Draw matrices side by side, each with its own scale of colours."""
    parts = []
    for name, matrix in found.items():
        rows = [
            {"i": i, "j": j, "d": round(float(value), 4)} for i, row in enumerate(matrix) for j, value in enumerate(row)
        ]
        parts.append(_heatmap(rows, name, None, alt.Color("d:Q", title="", scale=DISTANCE)))
    return alt.hconcat(*parts).resolve_scale(color="independent")


def by_c(rows: Rows) -> Any:
    """Draw the accuracy for every C, with the number of coalitions on the points."""
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=alt.X("C:O", sort=None, title="C", axis=alt.Axis(labelAngle=0)),
        y=_accuracy(),
    )
    colour = theme.COLOURS["in coalitions"]
    line = base.mark_line(color=colour, point={"color": colour, "size": 60}, strokeWidth=2.2)
    return alt.layer(line, base.mark_text(dy=-12).encode(text="coalitions:N")).properties(width=620, height=260)


def descents(losses: Sequence[Sequence[float]], converged: Sequence[int], best: float) -> Any:
    """Draw the loss after each inner iteration of every run, and how long the runs took.

    Parameters
    ----------
    losses : sequence of sequences of float
        The loss after each inner iteration, one sequence a run.
    converged : sequence of int
        The inner iteration of each run's last change.
    best : float
        The objective of the best partition, drawn as a line.
    """
    rows = [
        {"run": run, "iteration": step, "loss": value}
        for run, path in enumerate(losses)
        for step, value in enumerate(path)
    ]
    lines = (
        alt.Chart(alt.InlineData(values=rows), title="(a) Loss by inner iteration")
        .mark_line(opacity=0.25, strokeWidth=1, color=theme.COLOURS["in coalitions"], interpolate="step-after")
        .encode(
            x=alt.X("iteration:Q", title="Inner iteration"),
            y=alt.Y("loss:Q", title="Objective", scale=alt.Scale(zero=False)),
            detail="run:N",
        )
        .properties(width=300, height=230)
    )
    known = alt.Chart(alt.InlineData(values=[{"loss": best, "word": "best partition"}]))
    rule = known.mark_rule(strokeDash=[4, 4]).encode(y="loss:Q")
    word = known.mark_text(align="right", dx=-4, dy=9, x="width").encode(y="loss:Q", text="word:N")
    bars = (
        alt.Chart(alt.InlineData(values=[{"iterations": count} for count in converged]), title="(b) Last change")
        .mark_bar(color=theme.COLOURS["in coalitions"])
        .encode(
            x=alt.X("iterations:Q", bin=alt.Bin(step=4), title="Inner iterations until the last change"),
            y=alt.Y("count():Q", title="Runs"),
        )
        .properties(width=300, height=230)
    )
    return alt.hconcat(lines + rule + word, bars)


def joining(curves: Mapping[str, Sequence[Sequence[float]]], joined: int) -> Any:
    """Draw the accuracy by round of the newcomer and of its coalition, and a line where it joined."""
    rows = [{"way": way, "round": at, "accuracy": value} for way, line in curves.items() for at, value in line]
    colours = dict(zip(curves, ("#8a8f98", "#D55E00", "#1b87c9", "#56B4E9"), strict=True))
    lines = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_line(strokeWidth=2.2)
        .encode(
            x=alt.X("round:Q", title="Round", axis=alt.Axis(tickMinStep=1, grid=False)),
            y=_accuracy(),
            color=_ways(colours),
        )
    )
    rule = alt.Chart(alt.InlineData(values=[{"round": joined}])).mark_rule(strokeDash=[4, 4]).encode(x="round:Q")
    return alt.layer(lines, rule).properties(width=620, height=260)


def overview(panels: Mapping[str, Any]) -> Any:
    """Draw the pipeline on one real run: quantities, distances, coalitions, accuracy."""
    small = {"width": 190, "height": 190}
    clients = (
        alt.Chart(alt.InlineData(values=panels["clients"]), title="1. Clients: data stay where they are")
        .mark_bar()
        .encode(
            x=alt.X("client:O", title="Client", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
            y=alt.Y("samples:Q", title="Training samples", scale=alt.Scale(type="log", domainMin=1)),
            y2=alt.datum(1),
            color=alt.Color("type:N", legend=None, scale=alt.Scale(range=list(theme.COALITIONS))),
        )
        .properties(**small)
    )
    distances = _heatmap(
        panels["distances"], "2. Distances: discriminators", "Client", alt.Color("d:Q", legend=None, scale=DISTANCE)
    )
    base = alt.Chart(alt.InlineData(values=panels["coalitions"]), title="3. Coalitions: who trains with whom").encode(
        x=alt.X("place:O", axis=None), y=alt.Y("coalition:N", title="Coalition", axis=alt.Axis(labelAngle=0))
    )
    seats = base.mark_circle(size=230, opacity=1).encode(
        color=alt.Color("type:N", legend=None, scale=alt.Scale(range=list(theme.COALITIONS)))
    )
    coalitions = alt.layer(seats, base.mark_text(color="black", fontSize=9).encode(text="client:O")).properties(**small)
    models = (
        alt.Chart(alt.InlineData(values=panels["models"]), title="4. Models: one a coalition")
        .mark_bar()
        .encode(
            x=alt.X("way:N", sort=list(theme.COLOURS), title=None, axis=alt.Axis(labelAngle=-20)),
            y=alt.Y("accuracy:Q", title="Mean test accuracy", axis=alt.Axis(format=".0%")),
            color=alt.Color(
                "way:N",
                legend=None,
                scale=alt.Scale(domain=list(theme.COLOURS), range=list(theme.COLOURS.values())),
            ),
        )
        .properties(**small)
    )
    return alt.hconcat(clients, distances, coalitions, models).resolve_scale(color="independent")


def partitions(rows: Rows) -> Any:
    """Draw the gain of every partition over everyone alone, with one standard error to each side, a panel a measure."""
    order = sorted(
        {row["partition"] for row in rows},
        key=lambda name: -sum(row["gain"] for row in rows if row["partition"] == name),
    )
    parts: list[Any] = []
    for measure in dict.fromkeys(row["measure"] for row in rows):
        mine = [row for row in rows if row["measure"] == measure]
        names = alt.Axis(labelLimit=320) if not parts else None
        base = alt.Chart(alt.InlineData(values=mine), title=measure).encode(
            y=alt.Y("partition:N", sort=order, title=None, axis=names)
        )
        bars = base.mark_rule(opacity=0.5).encode(x=alt.X("low:Q", title="Points over alone"), x2="high:Q")
        points = base.mark_point(filled=True, size=60, opacity=1, color=theme.COLOURS["in coalitions"]).encode(
            x="gain:Q"
        )
        zero = alt.Chart(alt.InlineData(values=[{"x": 0}])).mark_rule(strokeDash=[4, 4]).encode(x="x:Q")
        parts.append(alt.layer(zero, bars, points).properties(width=170, height=280))
    return alt.hconcat(*parts)


def _heatmap(rows: Rows, title: str, axis_title: str | None, colour: alt.Color) -> Any:
    """Draw a matrix of distances.

    Parameters
    ----------
    rows : list of dict
        One row a pair: positions i and j, and the distance d.
    title : str
        What stands above it.
    axis_title : str or None
        What stands below it.
    colour : altair.Color
        How distances are coloured.
    """
    axis = alt.Axis(labelAngle=0, labelOverlap=True, ticks=False, domain=False)
    return (
        alt.Chart(alt.InlineData(values=rows), title=title)
        .mark_rect(stroke=None)
        .encode(
            x=alt.X("j:O", title=axis_title, axis=axis),
            y=alt.Y("i:O", title=None, axis=axis),
            color=colour,
        )
        .properties(width=190, height=190)
    )


def _accuracy() -> alt.Y:
    """Return an axis of test accuracies."""
    return alt.Y("accuracy:Q", title="Test accuracy", axis=alt.Axis(format=".0%"), scale=alt.Scale(zero=False))


def _ways(colours: Mapping[str, str]) -> alt.Color:
    """Return the colours of ways of training, with a legend."""
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    return alt.Color("way:N", scale=scale, legend=alt.Legend(title=None))
