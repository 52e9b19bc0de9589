"""The figures of the study of real federations: gains by federation, predicted against measured, who was harmed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from fedcollab.report import theme
from fedcollab.reproduce.federation_study import Pooled, Study

MODELS = {"mlp": "MLP", "logistic": "Logistic regression"}
COLOURS = {
    "as advised": theme.WAYS["as advised"],
    "everyone": theme.COLOURS["everyone together"],
    "ditto": "#CC79A7",
    "own-intercept": "#009E73",
}
VERDICTS = {"harmed": "#D55E00", "unclear": "#8a8f98", "gained": "#1b87c9"}
GAIN = "Gain in log loss over training alone"
#: points of a calibration curve
BINS = 8


def gains(studies: Sequence[Study]) -> Any:
    """Draw the gain in loss over alone by federation: the advice with two standard errors, the fixed policies."""
    order = _order(studies)
    parts: list[Any] = []
    for study in studies:
        advised = [
            {
                "federation": line.name,
                "policy": "as advised",
                "gain": line.gain,
                "low": line.gain - 2 * line.noise,
                "high": line.gain + 2 * line.noise,
            }
            for line in study.lines
        ]
        fixed = [
            {
                "federation": line.name,
                "policy": policy,
                "gain": float(line.policies["alone"][:, 0].mean() - line.policies[policy][:, 0].mean()),
            }
            for line in study.lines
            for policy in COLOURS
            if policy != "as advised"
        ]
        y = _rows(order, labels=not parts)
        x = alt.X("gain:Q", title=GAIN, scale=_scale())
        colour = alt.Color("policy:N", title=None, scale=alt.Scale(domain=list(COLOURS), range=list(COLOURS.values())))
        bars = alt.Chart(alt.InlineData(values=advised)).mark_rule(strokeWidth=3, opacity=0.5)
        bars = bars.encode(x=alt.X("low:Q", scale=_scale(), title=GAIN), x2="high:Q", y=y, color=colour)
        points = alt.Chart(alt.InlineData(values=advised)).mark_point(filled=True, size=70, opacity=1)
        others = alt.Chart(alt.InlineData(values=fixed)).mark_tick(thickness=3, height=11)
        layers = (_zero(), bars, others.encode(x=x, y=y, color=colour), points.encode(x=x, y=y, color=colour))
        parts.append(alt.layer(*layers).properties(width=300, height=22 * len(order), title=_title(study)))
    return alt.hconcat(*parts)


def calibration(studies: Sequence[Study]) -> Any:
    """Draw predicted against measured gains by client, with the calibration curve and the line of agreement."""
    parts: list[Any] = []
    for study in studies:
        told = [client for client in study.clients if client.predicted != 0]
        points = [{"predicted": client.predicted, "measured": client.gain} for client in told]
        reach = [client.predicted for client in told] or [0.0]
        ends = [{"predicted": value, "measured": value} for value in np.linspace(min(reach), max(reach), 20).tolist()]
        x = alt.X("predicted:Q", title="Predicted gain in log loss", scale=_scale())
        y = alt.Y("measured:Q", title="Measured gain", scale=_scale())
        curve = curve_of(told)
        line = alt.Chart(alt.InlineData(values=curve)).encode(x=x)
        layers = (
            alt.Chart(alt.InlineData(values=ends)).mark_line(strokeDash=[4, 4], opacity=0.6, color=theme.PRINT_INK),
            alt.Chart(alt.InlineData(values=points)).mark_point(filled=True, size=22, opacity=0.35, color="#8a8f98"),
        )
        colour = theme.WAYS["as advised"]
        shown = [layer.encode(x=x, y=y) for layer in layers]
        shown += [
            line.mark_rule(color=colour).encode(y=alt.Y("low:Q", title="Measured gain", scale=_scale()), y2="high:Q"),
            line.mark_line(color=colour, point=alt.OverlayMarkDef(size=50, filled=True, color=colour)).encode(y=y),
        ]
        parts.append(alt.layer(*shown).properties(width=320, height=280, title=_title(study)))
    return alt.hconcat(*parts)


def curve_of(clients: Sequence[Pooled], bins: int = BINS) -> list[dict[str, float]]:
    """Return the calibration curve: clients in bins by predicted gain, the mean measured one with two standard errors.

    Parameters
    ----------
    clients : sequence of Pooled
        The clients for whom a gain was predicted.
    bins : int
        At most so many bins, of equal numbers of clients.

    Returns
    -------
    list of dict
        One a bin: "predicted", "measured", "low", "high".
    """
    ordered = sorted(clients, key=lambda client: client.predicted)
    rows = []
    for part in np.array_split(np.arange(len(ordered)), min(bins, len(ordered) // 2)) if len(ordered) > 1 else []:
        measured = np.array([ordered[at].gain for at in part])
        error = float(measured.std(ddof=1) / np.sqrt(len(measured)))
        mean = float(measured.mean())
        predicted = float(np.mean([ordered[at].predicted for at in part]))
        rows.append({"predicted": predicted, "measured": mean, "low": mean - 2 * error, "high": mean + 2 * error})
    return rows


def harmed(studies: Sequence[Study]) -> Any:
    """Draw the measured gain of every client, a row a federation; colours tell who is harmed beyond chance."""
    order = _order(studies)
    parts: list[Any] = []
    for study in studies:
        rows = [
            {"federation": client.federation, "gain": client.gain, "client": client.verdict} for client in study.clients
        ]
        scale = alt.Scale(domain=list(VERDICTS), range=list(VERDICTS.values()))
        points = (
            alt.Chart(alt.InlineData(values=rows))
            .mark_point(filled=True, size=45, opacity=0.75)
            .encode(
                x=alt.X("gain:Q", title=GAIN, scale=_scale()),
                y=_rows(order, labels=not parts),
                color=alt.Color("client:N", title=None, scale=scale),
            )
        )
        layered = alt.layer(_zero(), points)
        parts.append(layered.properties(width=300, height=22 * len(order), title=_title(study)))
    return alt.hconcat(*parts)


def _order(studies: Sequence[Study]) -> list[str]:
    """Return the federations by the mean gain of the advice, the highest first."""
    found: dict[str, list[float]] = {}
    for study in studies:
        for line in study.lines:
            found.setdefault(line.name, []).append(line.gain)
    return sorted(found, key=lambda name: (-float(np.mean(found[name])), name))


def _rows(order: list[str], *, labels: bool) -> alt.Y:
    """Return an axis with one row a federation, also for those without a point."""
    axis = alt.Axis(labelLimit=200) if labels else None
    return alt.Y("federation:N", title=None, axis=axis, sort=order, scale=alt.Scale(domain=order))


def _scale() -> alt.Scale:
    """Return a scale that is linear near 0 and logarithmic farther out."""
    return alt.Scale(type="symlog", constant=0.05)


def _zero() -> Any:
    """Return a dashed line at 0."""
    rule = alt.Chart(alt.InlineData(values=[{"x": 0}])).mark_rule(strokeDash=[4, 4])
    return rule.encode(x=alt.X("x:Q", title=GAIN))


def _title(study: Study) -> str:
    """Return the model, and how many splits there are."""
    return f"{MODELS.get(study.model, study.model)}, {study.splits} split{'s' * (study.splits > 1)}"
