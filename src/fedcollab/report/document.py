"""The page of a run, in the order in which people around a table ask, as one file that needs no network."""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from fedcollab import __version__
from fedcollab.report import charts, theme, trained
from fedcollab.report.answer import answer
from fedcollab.report.clients import client_rows, stability_of
from fedcollab.report.differences import distance_words, many_clients
from fedcollab.report.facts import cost_facts, next_commands, setting_facts
from fedcollab.report.findings import finding_rows, separates
from fedcollab.report.measured import advice_section, weight_picture
from fedcollab.report.pictures import pictures
from fedcollab.report.run import RunContents
from fedcollab.report.slider import packed, slider
from fedcollab.report.ways import way_words
from fedcollab.report.words import figure, times
from fedcollab.wire.absence import words

SECTIONS = (
    ("answer", "The answer"),
    ("advice", "What was measured"),
    ("change", "How it would change"),
    ("clients", "Client by client"),
    ("check", "The data"),
    ("distances", "Distances"),
    ("training", "Training"),
    ("made", "How this was made"),
)


def render(run: RunContents) -> str:
    """Return the whole page of a run as HTML."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(_file("page.html"))
    fit = None if run.advice is None else run.advice.bound
    moved = None if run.path is None else slider(run.distances, run.path, run.collaboration, fit, run.task.loss)
    stable = stability_of(run)
    rows = client_rows(run, stable)
    specs = _specs(run, moved)
    results = _trained(run)
    crowded = many_clients(run)
    quantities = run.distances.quantities
    words_of = way_words(run.results, run.advice)
    source = run.config.get("settings", {}).get("source") or run.directory.resolve().name
    return template.render(
        title=f"Who should train with whom? {source}",
        source=source,
        date=str(run.config.get("started", ""))[:10],
        version=__version__,
        names=run.names,
        task=run.task,
        sections=[each for each in SECTIONS if each[0] != "advice" or run.advice is not None],
        palette=len(theme.COALITIONS),
        ways=[(word, theme.WAYS[word]) for word in words_of.values()],
        css=Markup(_file("page.css").replace("{{ badges }}", _badges())),
        js=Markup(_file("page.js")),
        runtime=Markup(_runtime()),
        answer=answer(run, rows, moved, stable),
        advice=advice_section(run),
        slider=None if moved is None else _slider_words(moved),
        rows=rows,
        crowded=crowded,
        stable=stable is not None,
        measured=any(row.gain is not None for row in rows),
        trained=results,
        distance=distance_words(run),
        findings=None if run.inspection is None else finding_rows(run.inspection),
        separates=separates(run),
        charts=specs,
        next=next_commands(run),
        command=run.config.get("command"),
        facts=[("Settings", setting_facts(run)), ("Communication and versions", cost_facts(run))],
        absent=words(run.absences),
        contradictions=[] if run.judgement is None else run.judgement.contradictions(),
        grouped=len(run.names) > charts.NAMED,
        figure=figure,
        percent=_percent,
        points=_points,
        data=as_json(
            {
                "names": list(run.names),
                "quantities": quantities.tolist(),
                "distance": None if crowded else packed(np.where(run.distances.observed, run.distances.matrix, np.nan)),
                "error": None if crowded else packed(run.distances.stderr),
                "slider": moved,
                "weights": _weights(run),
                "blocks": [] if run.collaboration is None else charts.blocks(run.collaboration.assignment),
                "palette": len(theme.COALITIONS),
                "crisp": charts.CRISP,
                "named": charts.NAMED,
            }
        ),
        specs=as_json(specs),
    )


def _file(name: str) -> str:
    """Return the text of one of the page's source files."""
    return (resources.files("fedcollab.report") / "page" / name).read_text(encoding="utf-8")


@functools.cache
def _runtime() -> str:
    """Return Vega, Vega-Lite and Vega-Embed in one script, once for all charts."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", _vega_lite_version())
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _vega_lite_version() -> str:
    """Return the version of Vega-Lite that Altair writes, as vl-convert names it: v6.4.1 is 6.4."""
    import altair

    return ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])


def as_json(value: Any) -> Markup:
    """Return JSON that is safe inside a script element: no tag can begin or end in it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _badges() -> str:
    """Return the style rules of the coalitions' colours."""
    pairs = zip(theme.COALITIONS, theme.ON_COALITIONS, strict=True)
    return "\n".join(f".c{i} {{ background: {fill}; color: {ink}; }}" for i, (fill, ink) in enumerate(pairs))


def _points(gain: float) -> str:
    """Return a gain in accuracy as text, in percentage points."""
    if abs(gain) < 0.0005:
        return "the same"
    return f"{'+' if gain > 0 else '−'}{abs(100 * gain):.1f} points"


def _percent(change: float) -> str:
    """Return a relative change as text: in percent or, from twice as much on, as a multiple.

    Examples
    --------
    >>> _percent(-0.25), _percent(0.4), _percent(2.2), _percent(31.0)
    ('−25 %', '+40 %', '3.2 times', '32 times')
    """
    if abs(change) < 0.005:
        return "the same"
    if change >= 0.995:
        return f"{times(1 + change)} times"
    return f"{'−' if change < 0 else '+'}{abs(100 * change):.0f} %"


def _slider_words(moved: dict[str, Any]) -> dict[str, Any]:
    """Return where the slider starts and what is written below it."""
    start = moved["suggested"] if moved["chosen"] is None else moved["chosen"]
    segment = moved["segments"][start]
    return {
        "count": len(moved["segments"]),
        "suggested": moved["suggested"],
        "start": start,
        "left_out": moved["left_out"],
        "said": f"For C {segment['words']}: {segment['count']} coalitions.",
        "scale": _scale(moved["segments"]),
    }


def _scale(segments: list[dict[str, Any]], most: int = 5) -> list[str]:
    """Return the values of C to write below the slider: those of at most `most` of its steps, evenly spaced.

    Examples
    --------
    >>> _scale([{"C": 0.3}, {"C": 1.0}, {"C": 2.5}, {"C": 10.0}], most=3)
    ['0.3', '2.5', '10']
    """
    count = min(most, len(segments))
    steps = [round(i * (len(segments) - 1) / max(1, count - 1)) for i in range(count)]
    return [figure(segments[step]["C"]) for step in steps]


def _trained(run: RunContents) -> dict[str, Any] | None:
    """Return the content of the section on training, or None where nothing was trained."""
    if run.judgement is None:
        return None
    waiting = [
        word for way, word in {**run.judgement.ways, "global": "with everyone"}.items() if way not in run.results
    ]
    pictures = trained.curve_rows(run)
    return {
        "sentences": run.judgement.sentences(),
        "lengths": run.judgement.lengths(),
        "remarks": run.judgement.remarks(),
        "summary": trained.summary_rows(run.judgement),
        "pictures": [{key: p[key] for key in ("coalition", "title", "clients")} for p in pictures],
        "verdicts": run.judgement.verdicts(),
        "waiting": f"Not trained yet: {', '.join(waiting)}." if waiting else "",
    }


def _weights(run: RunContents) -> list[list[int]] | None:
    """Return the weights of the advice in thousandths, row by row, where the page draws each pair of clients."""
    if run.advice is None or many_clients(run):
        return None
    picture = weight_picture(run, run.advice)
    return None if picture is None else np.rint(1000 * picture.matrix).astype(int).tolist()


def _specs(run: RunContents, moved: dict[str, Any] | None) -> dict[str, Any]:
    """Return the specification of every chart of the page, by the id of its place."""
    made = pictures(run, moved, live=True)
    return {key: {**chart.to_dict(), "config": theme.config()} for key, chart in made.items()}
