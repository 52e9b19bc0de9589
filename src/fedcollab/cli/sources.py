"""Where the files of a run's clients are on this machine, so that `join`, `check` and others need not be told again.

They are written down in RUN/sources.json, as paths from the run directory. The file is for this machine alone: no
report shows it, and a run without it works as before, with --clients.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcollab import files
from fedcollab.data.read import read_client, read_clients, test_beside
from fedcollab.errors import InputError
from fedcollab.parsing import complete
from fedcollab.runs import Run

if TYPE_CHECKING:
    from fedcollab.data import ClientData

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


def read_one(run: Run, path: Path, source: Mapping[str, Any]) -> ClientData:
    """Read one client's file as the run's were read, with its test split where there is one beside it.

    Parameters
    ----------
    run : Run
        The run.
    path : Path
        The file.
    source : mapping
        What was typed: "label" and "drop", or the run's where they are empty.
    """
    drop, typed = _drop(run, source), bool(source["drop"])
    return read_client(path, _label(run, source), test_beside(path), drop, lenient=not typed, **_how(run))


def read_present(run: Run, names: Iterable[str], source: Mapping[str, Any]) -> list[ClientData]:
    """Read the run's clients from their folder, or from where they joined from; other files there are ignored.

    Parameters
    ----------
    run : Run
        The run.
    names : iterable of str
        The clients.
    source : mapping
        What was typed: "clients", "label" and "drop", or what the run knows where they are empty.

    Raises
    ------
    InputError
        If the folder is not known, or lacks a client.
    """
    folder, elsewhere = locate(run, source["clients"])
    if folder is None:
        raise InputError("`--clients` must name the folder with the files of the run's clients")
    read = read_clients(folder, _label(run, source), _drop(run, source), **_how(run))
    found = {client.name: client for client in read}
    found |= {name: read_one(run, elsewhere[name], source) for name in names if name in elsewhere and name not in found}
    missing = [name for name in names if name not in found]
    if missing:
        raise InputError(
            f"`--clients` (={str(folder)!r}) has no file of client `{missing[0]}`; if it left: fedcollab leave"
        )
    return [found[name] for name in names]


def _settings(run: Run) -> dict[str, Any]:
    """Return the settings that the run was started with."""
    return dict(run.config().get("settings", {}))


def _label(run: Run, source: Mapping[str, Any]) -> str | None:
    """Return the label column: what was typed, else the run's."""
    return source["label"] or _settings(run).get("label")


def _drop(run: Run, source: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns to leave out: what was typed, else the run's."""
    return source["drop"] or tuple(_settings(run).get("drop") or ())


def _how(run: Run) -> dict[str, Any]:
    """Return how the run's files were read: columns, labels, and the column of groups."""
    settings = _settings(run)
    return {
        "columns": settings.get("columns"),
        "label_map": settings.get("label_map"),
        "id_column": settings.get("id"),
    }


def _known(run: Run) -> dict[str, Any]:
    """Return what was written down."""
    content = files.read_json(run.file(FILE), "sources") if run.has(FILE) else {}
    with complete(run.file(FILE), "sources"):
        folder, clients = content.get("folder"), dict(content.get("clients", {}))
        if not all(isinstance(path, str) for path in (folder or "", *clients.values())):
            raise TypeError("a path that is no text")
        return {"folder": folder or None, "clients": clients}


def _from(run: Run, path: Path) -> str:
    """Return the path from the run directory to a file or folder."""
    return os.path.relpath(path.resolve(), run.path.resolve())
