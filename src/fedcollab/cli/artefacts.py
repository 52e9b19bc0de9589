"""What earlier stages left, from a file or from a run directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcollab import advice as advice_of
from fedcollab import coalitions, runs
from fedcollab import distances as distances_of
from fedcollab.errors import InputError

if TYPE_CHECKING:
    from fedcollab.coalitions import Collaboration
    from fedcollab.distances import Distances


def open_distances(path: Path) -> Distances:
    """Return the distances of a file or of a run directory."""
    return runs.Run.open(path).distances() if path.is_dir() else distances_of.Distances.load(path)


def open_collaboration(path: Path) -> Collaboration:
    """Return the coalitions of a file, or those of a run directory if they were made of the distances there.

    Parameters
    ----------
    path : Path
        The file or the run directory.

    Raises
    ------
    InputError
        If there is none, or the distances of the run are newer.
    """
    if not path.exists():
        raise InputError(f"`{path}` does not exist; expected a run directory, or a file of `fedcollab solve`")
    if not path.is_dir():
        return coalitions.Collaboration.load(path)
    found = runs.Run.open(path, "collaboration.json").collaboration()
    assert found is not None
    return found


def open_coalitions(path: Path) -> Any:
    """Return what a training is to follow: the advice of a file or a run directory, else its coalitions as lists.

    Parameters
    ----------
    path : Path
        The file or the run directory.

    Raises
    ------
    InputError
        If there is neither, or the distances of the run are newer.
    """
    if path.is_dir():
        advice = runs.Run.open(path).advice()
        return open_collaboration(path).coalitions if advice is None else advice
    if path.name == "advice.json":
        return advice_of.Advice.load(path)
    return open_collaboration(path).coalitions


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, whatever kind of artefact it is."""
    return json.loads(path.read_text(encoding="utf-8"))
