"""Where the files of a run's clients are on this machine, so that `join`, `leave` and `check` need not be told again.

They are written down in RUN/sources.json, as paths from the run directory. The file is for this machine alone: no
report shows it, and a run without it works as before, with --clients.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcollab import files
from fedcollab.parsing import complete
from fedcollab.runs import Run

FILE = "sources.json"


def remember(run: Run, folder: Path | None, joined: Mapping[str, Path] | None = None) -> None:
    """Write down where client files are, beside what is known already.

    Parameters
    ----------
    run : Run
        The run.
    folder : Path or None
        The folder with one file per client, if one was given.
    joined : mapping of Path, optional
        The files of clients that are elsewhere, by name.
    """
    content = _known(run)
    try:
        if folder is not None:
            content["folder"] = _from(run, folder)
        content["clients"] |= {name: _from(run, path) for name, path in (joined or {}).items()}
    except ValueError:  # on another drive: there is no path from the run to it
        return
    if content != _known(run):
        files.write_json(run.file(FILE), "sources", content)


def forget(run: Run, client: str) -> None:
    """Remove a client that has left."""
    content = _known(run)
    if content["clients"].pop(client, None) is not None:
        files.write_json(run.file(FILE), "sources", content)


def locate(run: Run, folder: Path | None) -> tuple[Path | None, dict[str, Path]]:
    """Return where client files are.

    Parameters
    ----------
    run : Run
        The run.
    folder : Path or None
        The folder that was given.

    Returns
    -------
    tuple of (Path or None, dict of Path)
        The folder, the run's if none was given; and the files of clients that joined from elsewhere, if they are still
        there, by name.
    """
    known = _known(run)
    if folder is None and known["folder"] is not None:
        folder = Path(os.path.relpath(run.path / known["folder"]))
    joined = {name: run.path / path for name, path in known["clients"].items()}
    return folder, {name: path for name, path in joined.items() if path.is_file()}


def _known(run: Run) -> dict[str, Any]:
    """Return what was written down."""
    content = files.read_json(run.file(FILE), "sources") if run.has(FILE) else {}
    with complete(run.file(FILE), "sources"):
        return {"folder": content.get("folder"), "clients": dict(content.get("clients", {}))}


def _from(run: Run, path: Path) -> str:
    """Return the path from the run directory to a file or folder."""
    return os.path.relpath(path.resolve(), run.path.resolve())
