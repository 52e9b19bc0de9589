"""Several files of a folder changed at once: a process that is killed leaves the old state, or one to be completed.

The new files are written to a folder of their own (`NEXT`). Once all are there, `ready.json` lists them, and they are
moved into place one by one; whoever opens the folder after an interrupt finishes the moves.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from fedcollab import files, parsing
from fedcollab.errors import InputError

#: where the new files wait until all of them are written
NEXT = "history/.next"


def replace(folder: Path, write: Callable[[Path], None], aside: Mapping[str, str]) -> None:
    """Change several files of a folder at once; the caller keeps other processes away meanwhile.

    Parameters
    ----------
    folder : Path
        The folder.
    write : callable
        Writes the new files into the folder that it is given, under the names that they will have.
    aside : mapping
        Files that no longer hold, and where they are moved to.
    """
    staged = folder / NEXT
    shutil.rmtree(staged, ignore_errors=True)
    write(staged)
    names = [str(path.relative_to(staged)) for path in sorted(staged.rglob("*")) if path.is_file()]
    content = {"aside": {old: new for old, new in aside.items() if (folder / old).exists()}, "files": names}
    files.write_json(staged / "ready.json", "change", content)
    complete(folder)


def complete(folder: Path) -> None:
    """Finish a change that is ready, and remove one that is not.

    Parameters
    ----------
    folder : Path
        The folder.
    """
    staged = folder / NEXT
    if (staged / "ready.json").exists():
        aside, names = _read(staged / "ready.json")
        try:
            for old, new in aside.items():
                if (folder / old).exists() and not (folder / new).exists():
                    (folder / new).parent.mkdir(parents=True, exist_ok=True)
                    os.replace(folder / old, folder / new)
            for name in names:
                if (staged / name).exists():
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    os.replace(staged / name, folder / name)
        except OSError as error:
            raise InputError(
                f"`{folder}` holds a change that was interrupted and cannot be completed: {error.strerror}"
            ) from None
        files.sync_folder(folder)
        (staged / "ready.json").unlink(missing_ok=True)
    shutil.rmtree(staged, ignore_errors=True)


def _read(path: Path) -> tuple[dict[str, str], list[str]]:
    """Return what is moved aside, and which files come in; the folder may be from anyone, and names nothing outside."""
    content = files.read_json(path, "change")
    with parsing.complete(path, "change"):
        aside, names = dict(content["aside"]), list(content["files"])
        for name in (*aside, *aside.values(), *names):
            if not isinstance(name, str) or not name.isprintable() or not {"", ".", ".."}.isdisjoint(name.split("/")):
                raise ValueError(f"{name!r} is no file of this folder")  # an absolute path begins with an empty part
        return aside, names
