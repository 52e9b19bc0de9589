"""The page's pictures as PNG, SVG and PDF, for papers and slides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedcollab import files as artefact
from fedcollab.errors import choose
from fedcollab.report import theme
from fedcollab.report.charts import Chart
from fedcollab.report.pictures import pictures
from fedcollab.report.run import Run
from fedcollab.report.slider import slider

FORMATS = {"png": "png", "svg": "svg", "pdf": "pdf"}
#: width of a figure in pixels (PNG files have three times as many), and side of a matrix
WIDTH, SIDE = 620, 420


def save_figures(run: Run, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write NAME.FORMAT for every picture, black on white."""
    for kind in formats:
        choose("formats", kind, FORMATS)
    moved = None if run.path is None else slider(run.distances, run.path, run.collaboration)
    written = []
    for name, chart in pictures(run, moved, live=False).items():
        spec = printable(chart, square=name.startswith("matrix"))
        for kind in formats:
            path = folder / f"{name}.{kind}"
            artefact.write_bytes(path, convert(spec, kind))
            written.append(path)
    return written


def printable(chart: Chart, *, square: bool) -> dict[str, Any]:
    """The chart's specification for paper: fixed size, black ink, white ground."""
    spec: dict[str, Any] = chart.to_dict()
    size = {"width": SIDE, "height": SIDE} if square else {"width": WIDTH}
    return {**spec, **size, "config": theme.config(theme.PRINT_INK) | {"background": "white"}}


def convert(spec: dict[str, Any], kind: str) -> bytes:
    """One picture as a file's content."""
    import vl_convert

    if kind == "png":
        return bytes(vl_convert.vegalite_to_png(spec, scale=3))
    if kind == "pdf":
        return bytes(vl_convert.vegalite_to_pdf(spec))
    return str(vl_convert.vegalite_to_svg(spec)).encode()
