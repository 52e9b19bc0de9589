"""Where the files of a run's clients are on this machine, so that `join`, `leave` and `check` need not be told again.

They are written down in RUN/sources.json, as paths from the run directory. The file is for this machine alone: no
report shows it, and a run without it works as before, with --clients.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcollab import files
from fedcollab.data.client import ClientData
from fedcollab.data.read import TEST, read_client, read_clients
from fedcollab.errors import InputError
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


def knows_files(run: Run) -> bool:
    """Return whether the run knows where client files are."""
    return run.has(FILE)


def read_newcomer(path: Path, label: str | None, drop: Sequence[str]) -> ClientData:
    """Read one client's file, with its test split where there is one beside it.

    Parameters
    ----------
    path : Path
        The file.
    label : str or None
        The label column.
    drop : sequence of str
        Columns to leave out.
    """
    test = path.with_name(f"{path.stem}{TEST}{path.suffix}")
    return read_client(path, label, test if test.is_file() else None, drop)


def read_present(
    run: Run, names: Iterable[str], folder: Path | None, label: str | None, drop: Sequence[str]
) -> list[ClientData]:
    """Read the files of clients of the run: those of a folder, and others where the run knows them to be.

    Parameters
    ----------
    run : Run
        The run.
    names : iterable of str
        The clients.
    folder : Path or None
        The folder that was given; without one, that of the run. Other files there are ignored.
    label : str or None
        The label column.
    drop : sequence of str
        Columns to leave out.

    Returns
    -------
    list of ClientData
        The clients, in the order of `names`.

    Raises
    ------
    InputError
        If no folder is given or known, or a client's file is nowhere.
    """
    known = _known(run)
    if folder is None and known["folder"] is not None:
        folder = run.path / known["folder"]
    if folder is None:
        raise InputError("`--clients` must name the folder with the files of the run's clients")
    found = {client.name: client for client in read_clients(folder, label, drop)}
    for name in names:
        elsewhere = run.path / known["clients"].get(name, "")
        if name not in found and elsewhere.is_file():
            found[name] = read_newcomer(elsewhere, label, drop)
        elif name not in found:
            where = os.path.relpath(folder)
            raise InputError(f"`--clients` (={where!r}) has no file of client `{name}`; if it left: fedcollab leave")
    return [found[name] for name in names]


def _known(run: Run) -> dict[str, Any]:
    """Return what was written down."""
    content = files.read_json(run.file(FILE), "sources") if run.has(FILE) else {}
    return {"folder": content.get("folder"), "clients": dict(content.get("clients", {}))}


def _from(run: Run, path: Path) -> str:
    """Return the path from the run directory to a file or folder."""
    return os.path.relpath(path.resolve(), run.path.resolve())
