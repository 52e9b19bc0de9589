"""The page's pictures as PNG, SVG and PDF, for papers and slides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt

from fedcollab import files as artefact
from fedcollab.errors import choose
from fedcollab.report import theme
from fedcollab.report.pictures import pictures
from fedcollab.report.run import RunContents
from fedcollab.report.slider import slider

FORMATS = {"png": "png", "svg": "svg", "pdf": "pdf"}
#: width of a figure in pixels (PNG files have three times as many), and side of a matrix
WIDTH, SIDE = 620, 420


def save_figures(run: RunContents, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write NAME.FORMAT for every picture of a run, black on white, and return the files.

    Parameters
    ----------
    run : RunContents
        The run.
    folder : Path
        Where the pictures go.
    formats : sequence of {"png", "svg", "pdf"}
        One file is written for each.
    """
    moved = None if run.path is None else slider(run.distances, run.path, run.collaboration)
    written = []
    for name, chart in pictures(run, moved, live=False).items():
        size = {"width": SIDE, "height": SIDE} if name.startswith(("matrix", "weights")) else {"width": WIDTH}
        written += _write({**chart.to_dict(), **size}, folder / name, formats)
    return written


def save_chart(chart: alt.TopLevelMixin, path: str | Path, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write an Altair chart in the style of the report's figures, black on white.

    Parameters
    ----------
    chart : Altair chart
        The chart.
    path : str or Path
        The file to write, without its suffix.
    formats : sequence of {"png", "svg", "pdf"}
        One file is written for each.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    InputError
        If a format is unknown, or a file cannot be written.
    """
    return _write(chart.to_dict(), Path(path), formats)


def _write(spec: dict[str, Any], path: Path, formats: Sequence[str]) -> list[Path]:
    """Write a chart's specification `spec` as PATH.FORMAT for each of `formats`, black on white."""
    spec = {**spec, "config": theme.config(theme.PRINT_INK) | {"background": "white"}}
    written = []
    for kind in [choose("formats", kind, FORMATS) for kind in formats]:
        written.append(path.with_name(f"{path.name}.{kind}"))
        artefact.write_bytes(written[-1], convert(spec, kind))
    return written


def convert(spec: dict[str, Any], kind: str) -> bytes:
    """Return a chart's specification as the content of a file of this kind ("png", "svg" or "pdf")."""
    import vl_convert

    if kind == "png":
        return bytes(vl_convert.vegalite_to_png(spec, scale=3))
    if kind == "pdf":
        return bytes(vl_convert.vegalite_to_pdf(spec))
    return str(vl_convert.vegalite_to_svg(spec)).encode()
