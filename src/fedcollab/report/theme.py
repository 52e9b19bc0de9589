"""Colours and chart settings: safe for colour-blind readers, the same on the page, in notebooks and in figures."""

from __future__ import annotations

from typing import Any, Final

#: Okabe and Ito's palette without black; coalitions beyond the seventh repeat colours, so each also shows its number
COALITIONS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")
#: text on each of them, for a contrast of at least 4.5
ON_COALITIONS = ("#ffffff", "#000000", "#000000", "#000000", "#000000", "#000000", "#000000")
#: distances from alike (bright) to nothing in common (dark)
MATRIX: Final = "viridis"
#: text and lines where the page's own colour is not to be had
PRINT_INK = "#1b1f24"
FRAME = "#e5484d"
UNMEASURED = "#8a8f98"
#: the two parts of a client's bound
PARTS = {"too little data": "#56B4E9", "unlike partners": "#D55E00"}
#: the ways of training
COLOURS = {"alone": "#8a8f98", "everyone together": "#D55E00", "in coalitions": "#1b87c9"}
#: the same for a run, whose training in coalitions may be the advised one
WAYS = {**COLOURS, "as advised": COLOURS["in coalitions"]}


def config(ink: str = "currentColor") -> dict[str, Any]:
    """Return settings for Vega-Lite.

    Parameters
    ----------
    ink : str
        Colour of text and lines; on the page it is the text's own colour, so that light, dark and print need no redraw.
    """
    text = {"labelColor": ink, "titleColor": ink, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": 600}
    return {
        "background": None,
        "font": "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
        "view": {"stroke": None},
        "aria": False,
        "axis": {
            **text,
            "aria": False,
            "gridColor": ink,
            "gridOpacity": 0.13,
            "domainColor": ink,
            "domainOpacity": 0.4,
            "tickColor": ink,
            "tickOpacity": 0.4,
            "titlePadding": 8,
        },
        "legend": {**text, "aria": False, "orient": "top", "symbolType": "square"},
        "title": {"color": ink, "anchor": "start", "fontSize": 13},
        "text": {"color": ink},
        "rule": {"color": ink},
        "tick": {"color": ink},
        "mark": {"aria": False},
    }
