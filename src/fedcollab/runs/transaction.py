"""Several files of a folder changed at once: a process that is killed leaves the old state, or one to be completed.

The new files are written to a folder of their own (`NEXT`). Once all are there, `ready.json` lists them, and they are
moved into place one by one; whoever opens the folder after an interrupt finishes the moves.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from fedcollab import files

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
        plan = files.read_json(staged / "ready.json", "change")
        for old, new in plan["aside"].items():
            if (folder / old).exists() and not (folder / new).exists():
                (folder / new).parent.mkdir(parents=True, exist_ok=True)
                os.replace(folder / old, folder / new)
        for name in plan["files"]:
            if (staged / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(staged / name, folder / name)
        files.sync_folder(folder)
        (staged / "ready.json").unlink()
    shutil.rmtree(staged, ignore_errors=True)
