"""Results as files: JSON that a person can read, written whole or not at all; and the folders of the user.

Every artefact is an object with `"fedcollab": KIND` and `"format": 1` first, so that a file handed to the wrong
command is recognised. Arrays become nested lists; matrices keep one row a line.
"""

from __future__ import annotations

import contextlib
import datetime
import glob
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedcollab.errors import InputError

try:
    import fcntl
except ImportError:  # no such locks on Windows: what a killed writer left stays
    fcntl = None  # type: ignore[assignment]

FORMAT = 1
#: how temporary files end: nobody else's do
UNFINISHED = ".fedcollab~"


def write_bytes(path: str | Path, content: bytes, *, private: bool = False) -> None:
    """Write a file atomically: a reader sees the old content or the new one, never half of it.

    Parameters
    ----------
    path : str or Path
        The file; folders that are missing are made.
    content : bytes
        What to write.
    private : bool
        Whether only its owner may read and write the file (0600): models and what training keeps remember samples.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    path = check_target(path)
    sweep(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = _temporary(path)
    except OSError as error:
        raise InputError(f"`{path}` cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, (0o600 if private else 0o666) & ~umask)
            if fcntl:  # while it is locked: nobody takes it for a dead writer's
                os.replace(temporary, path)
        if not fcntl:
            os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def sweep(path: str | Path) -> None:
    """Remove the temporary files that killed writers of this path left; a living writer holds a lock on its file.

    Parameters
    ----------
    path : str or Path
        The file that was to be written.
    """
    path = Path(path)
    if not fcntl or not path.parent.is_dir():
        return
    for left in list(path.parent.glob(f".{glob.escape(path.name)}.*{UNFINISHED}")):
        try:
            with left.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.unlink()
        except OSError:  # locked, gone, or not ours to remove
            continue


def _temporary(path: Path) -> tuple[int, str]:
    """Make a new temporary file in the same folder and lock it; return its descriptor and its path."""
    while True:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=UNFINISHED)
        lock(handle)
        if os.fstat(handle).st_nlink:  # else swept away before it was locked
            return handle, temporary
        os.close(handle)


def lock(descriptor: int) -> None:
    """Wait for the exclusive lock of an open file.

    Does nothing where the system (Windows, some network file systems) has no such locks.

    Parameters
    ----------
    descriptor : int
        The descriptor of the open file.
    """
    if fcntl:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)


def check_target(path: str | Path) -> Path:
    """Check that a file can be written, as far as that can be seen without writing it: worth doing before long work.

    Parameters
    ----------
    path : str or Path
        The file to write.

    Returns
    -------
    Path
        The path.

    Raises
    ------
    InputError
        If it is a folder or a device, or lies in a folder that may not be written to.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise InputError(f"`{path}` is a {'folder' if path.is_dir() else 'device'}; expected a file to write")
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise InputError(f"`{path}` cannot be written: `{above}` is not a folder that you may write to")
    return path


def write_json(path: str | Path, kind: str, content: Mapping[str, Any], made: Mapping[str, Any] | None = None) -> None:
    """Save one artefact as a JSON file.

    Parameters
    ----------
    path : str or Path
        The file.
    kind : str
        What the file holds ("distances", "training", ...); `read_json` compares it.
    content : mapping
        What to write.
    made : mapping, optional
        The settings and inputs that the artefact was made with, if a run keeps it (see `runs.run`).
    """
    stamp = {} if made is None else {"made": made}
    write_bytes(path, (dumps({"fedcollab": kind, "format": FORMAT, **stamp, **content}) + "\n").encode())


def digest(path: str | Path) -> str:
    """Return the SHA-256 checksum of a file's content in hexadecimal digits."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def read_made(path: str | Path) -> dict[str, Any] | None:
    """Return the settings and inputs that an artefact was made with; None if the file does not hold them."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"`{path}` is not JSON: {error}") from None
    made = content.get("made") if isinstance(content, dict) else None
    return made if isinstance(made, dict) and {"settings", "inputs"} <= made.keys() else None


def inside(path: str | Path, *names: str) -> Path:
    """Return the file that is meant: the path itself or, if it is a folder such as a run directory, the file in it.

    Parameters
    ----------
    path : str or Path
        A file or a folder.
    *names : str
        What the file is called in a folder; of several names the first that is there.

    Returns
    -------
    Path
        The file; it need not exist.

    Examples
    --------
    >>> inside("runs/hospitals/distances.json", "distances.json").name
    'distances.json'
    """
    path = Path(path)
    if not path.is_dir():
        return path
    return next((path / name for name in names if (path / name).is_file()), path / names[0])


def read_json(path: str | Path, kind: str) -> dict[str, Any]:
    """Load an artefact that `write_json` saved.

    Parameters
    ----------
    path : str or Path
        The file.
    kind : str
        What it must hold, as given to `write_json`.

    Returns
    -------
    dict
        The whole content of the file.

    Raises
    ------
    InputError
        If the file does not exist, is not JSON, or is of another kind or format.
    """
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"`{path}` does not exist; expected a {kind} file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"`{path}` cannot be read: {error}") from None
    except json.JSONDecodeError as error:
        raise InputError(f"`{path}` is not JSON (line {error.lineno}: {error.msg}); expected a {kind} file") from None
    if not isinstance(content, dict) or "fedcollab" not in content:
        raise InputError(f"`{path}` is not a fedcollab file; expected a {kind} file")
    if content["fedcollab"] != kind:
        raise InputError(f"`{path}` is a {content['fedcollab']} file; expected a {kind} file")
    if content.get("format") != FORMAT:
        raise InputError(f"`{path}` has format {content.get('format')!r}; this version reads format {FORMAT}")
    return content


def dumps(value: Any) -> str:
    """Return a value as JSON for people: objects with one key a line, lists of plain values on one line.

    Parameters
    ----------
    value : object
        Plain values, NumPy values and arrays, paths, and dicts and lists of them; NaN and infinity become null.

    Returns
    -------
    str
        The JSON text, without a newline at the end.

    Examples
    --------
    >>> print(dumps({"rows": np.eye(2, dtype=int), "loss": float("nan")}))
    {
      "rows": [
        [1, 0],
        [0, 1]
      ],
      "loss": null
    }
    """
    return _render(_plain(value), 0)


def _plain(value: Any) -> Any:
    """Convert NumPy values and paths to plain ones, and non-finite floats to None (JSON has no NaN)."""
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value


def _render(value: Any, depth: int) -> str:
    pad = "  " * (depth + 1)
    if isinstance(value, dict) and value:
        rows = [
            f"{pad}{json.dumps(key, ensure_ascii=False)}: {_render(item, depth + 1)}" for key, item in value.items()
        ]
        return "{\n" + ",\n".join(rows) + "\n" + "  " * depth + "}"
    if isinstance(value, list) and any(isinstance(item, (list, dict)) for item in value):
        return "[\n" + ",\n".join(pad + _render(item, depth + 1) for item in value) + "\n" + "  " * depth + "]"
    return json.dumps(value, ensure_ascii=False)


def own_folder() -> Path | None:
    """Return the user's own data folder, or None if the environment variable FEDCOLLAB_DATA names none."""
    value = os.environ.get("FEDCOLLAB_DATA", "").strip()
    return Path(value).expanduser() if value else None


def cache_folder() -> Path:
    """Return `fedcollab` in the user's cache folder (XDG_CACHE_HOME, or LOCALAPPDATA on Windows, or ~/.cache)."""
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(base) if base else Path.home() / ".cache") / "fedcollab"


def now(precision: str = "seconds") -> str:
    """Return the time in UTC as ISO 8601 text.

    Parameters
    ----------
    precision : str
        A `timespec` of `datetime.isoformat`, such as "seconds" or "milliseconds".

    Returns
    -------
    str
        Such as "2026-11-17T20:15:00+00:00".
    """
    return datetime.datetime.now(datetime.UTC).isoformat(timespec=precision)
