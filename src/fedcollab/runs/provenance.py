"""How an artefact came about: command, versions and time; and in what that differs from what is asked for now."""

from __future__ import annotations

import json
import platform
import shlex
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from fedcollab import __version__, files

PACKAGES = ("numpy", "torch", "scikit-learn", "pandas")


def command() -> str:
    """Return the command line that started this process, as a person would type it.

    Of an absolute path only the last part is kept: the run is shown to others, who need not know where the data are.
    """
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
    program = Path(sys.argv[0]).name
    return shlex.join(["fedcollab" if program in ("", "-c") else program, *words])


def versions() -> dict[str, str]:
    """Return the versions of what ran: fedcollab, Python, and the packages whose version can change a figure."""
    found = {"fedcollab": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def provenance() -> dict[str, Any]:
    """Return the command, the time and the versions with which a run starts."""
    return {"command": command(), "started": files.now(), "versions": versions()}


def as_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping as it will read back from JSON.

    Parameters
    ----------
    value : mapping
        Numbers, texts, lists and mappings.

    Examples
    --------
    >>> as_json({"C": 10.0, "names": ("north", "south")})
    {'C': 10.0, 'names': ['north', 'south']}
    """
    plain: dict[str, Any] = json.loads(files.dumps(dict(value)))
    return plain


def differences(known: Mapping[str, Any], wanted: Mapping[str, Any], *, newcomers: bool = False) -> list[str]:
    """Say which settings or inputs differ; clients are compared one by one, as far as both sides know them.

    Parameters
    ----------
    known, wanted : mapping
        What an artefact was made with, and what is asked for now.
    newcomers : bool
        Whether a client that is known only now counts as a difference.

    Examples
    --------
    >>> differences({"seed": 0, "clients": {"north": "a"}}, {"seed": 1, "clients": {"north": "b", "south": "c"}})
    ['seed: 0 before, 1 now', 'the data of `north`']
    """
    texts = []
    for key in dict.fromkeys((*known, *wanted)):
        before, now = known.get(key), wanted.get(key)
        if key == "clients":
            old, new = before or {}, now or {}
            both = [name for name in old if name in new and None not in (old[name], new[name])]
            texts += [f"the data of `{name}`" for name in both if old[name] != new[name]]
            texts += [f"`{name}` is new" for name in new if newcomers and name not in old]
        elif before != now:
            long = len(f"{before}{now}") > 60
            texts.append(key if long else f"{key}: {before} before, {now} now")
    return texts
