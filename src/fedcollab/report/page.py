"""Write the report of a run: one self-contained page, and its pictures as files."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from fedcollab import files
from fedcollab.errors import InputError
from fedcollab.report.document import render
from fedcollab.report.figures import save_figures
from fedcollab.report.run import read_run


def write(directory: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a run directory, at whatever stage it is.

    One self-contained file: it opens from disk, needs no network, and may be forwarded.

    Parameters
    ----------
    directory : str or Path
        The run directory.
    out : str or Path, optional
        The file, or the folder for it; without it, report.html in the run directory.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    InputError
        If the directory is no run, or a package that the pictures need is missing.
    """
    need_charts()
    run = read_run(directory)
    page = run.directory / "report.html" if out is None else Path(out)
    if page.is_dir():
        page = page / "report.html"
    files.write_bytes(page, render(run).encode())
    return page


def write_figures(
    directory: str | Path, folder: str | Path, formats: Sequence[str] = ("png", "svg", "pdf")
) -> list[Path]:
    """Write every picture that a run can show, in every format.

    Parameters
    ----------
    directory : str or Path
        The run directory.
    folder : str or Path
        Where the pictures go.
    formats : sequence of {"png", "svg", "pdf"}
        One file is written for each.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    InputError
        If the directory is no run, a format is unknown, or a package that the pictures need is missing.
    """
    need_charts()
    return save_figures(read_run(directory), Path(folder), formats)


def need_charts() -> None:
    """Check that the package that turns charts into files is installed.

    Raises
    ------
    InputError
        If it is not; the message says how to install it.
    """
    if find_spec("vl_convert") is None:
        raise InputError("the pictures need vl_convert: pip install 'fedcollab[report]'")
