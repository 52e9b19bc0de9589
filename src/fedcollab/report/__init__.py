"""Stage 5: what to show to the partners. One HTML file from a run directory, and the same pictures as figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedcollab import files as artefact
from fedcollab.errors import InputError

__all__ = ["write", "write_figures"]


def write(directory: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a run directory, at whatever stage it is, and return where.

    One self-contained file: it opens from disk, asks no network, and may be forwarded.
    """
    need_charts()
    from fedcollab.report.document import render
    from fedcollab.report.run import read_run

    run = read_run(directory)
    page = run.directory / "report.html" if out is None else Path(out)
    if page.is_dir():
        page = page / "report.html"
    artefact.write_bytes(page, render(run).encode())
    return page


def write_figures(
    directory: str | Path, folder: str | Path, formats: Sequence[str] = ("png", "svg", "pdf")
) -> list[Path]:
    """Write every picture that a run can show, in every format, and return where."""
    need_charts()
    from fedcollab.report.figures import save_figures
    from fedcollab.report.run import read_run

    return save_figures(read_run(directory), Path(folder), formats)


def need_charts() -> None:
    """Say how to get the optional packages where they are missing."""
    from importlib.util import find_spec

    missing = [name for name in ("altair", "vl_convert") if find_spec(name) is None]
    if missing:
        raise InputError(f"the pictures need {' and '.join(missing)}: pip install 'fedcollab[report]'")
