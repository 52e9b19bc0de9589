"""Results as files: JSON that a person can read, written whole or not at all; and the folders of the user.

Every artefact is an object with `"fedcollab": KIND` and `"format": 1` first, so that a file handed to the wrong
command is recognised, and a checksum of all the rest, so that one that was damaged or changed is refused. A file
without a checksum (by an earlier version, or by hand) is read all the same. Arrays become nested lists; matrices keep
one row a line.
"""

from __future__ import annotations

import contextlib
import datetime
import glob
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedcollab.errors import InputError
from fedcollab.parsing import MOST_JSON, check_file, parse_json, read_json_file, read_text

try:
    import fcntl
except ImportError:  # no such locks on Windows: what a killed writer left stays
    fcntl = None  # type: ignore[assignment]

FORMAT = 1
#: how temporary files end: nobody else's do
UNFINISHED = ".fedcollab~"
#: where the checksum stands in an artefact; it is made of the text with zeros in its place
CHECKSUM = "content_sha256"
_ZEROS = "0" * 64
_STAMP = re.compile(rf'"{CHECKSUM}": "([0-9a-f]{{64}})"')


def write_bytes(path: str | Path, content: bytes, *, private: bool = False) -> None:
    """Write a file atomically: a reader sees the old content or the new one, never half of it.

    The content is on the disk before the file gets its name, and the name before this returns: a power cut does no harm
    either.

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
            os.fsync(file.fileno())
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, (0o600 if private else 0o666) & ~umask)
            if fcntl:  # while it is locked: nobody takes it for a dead writer's
                os.replace(temporary, path)
        if not fcntl:
            os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise InputError(f"`{path}` cannot be written: {error.strerror}; what it held before is kept") from None
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def sync_folder(folder: str | Path) -> None:
    """Have the names in a folder written to the disk, where the system can do that.

    Parameters
    ----------
    folder : str or Path
        The folder.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the exclusive lock of a file, which is made if it is missing, and wait for whoever holds it.

    Parameters
    ----------
    path : Path
        The file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        lock(descriptor)
        yield
    finally:
        os.close(descriptor)


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


#: the folders that this process works in: their open descriptors, and how often they were claimed
_CLAIMED: dict[tuple[int, int], tuple[int, int]] = {}


@contextlib.contextmanager
def claim(folder: str | Path) -> Iterator[None]:
    """Keep other processes from changing a folder meanwhile; a process that is killed loses its claim with its life.

    Does nothing for a folder that does not exist, and where the system has no such locks. A process may claim a folder
    that it has claimed already.

    Parameters
    ----------
    folder : str or Path
        The folder, such as a run directory.

    Raises
    ------
    InputError
        If another process has claimed it.
    """
    if not fcntl or not Path(folder).is_dir():
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    found = os.fstat(descriptor)
    place = found.st_dev, found.st_ino
    if place in _CLAIMED:
        os.close(descriptor)
    else:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise InputError(
                f"`{folder}` is in use: another process is working in it; nothing was changed. Wait until it has "
                "ended, or give another folder"
            ) from None
        except OSError:  # a file system without locks
            pass
        _CLAIMED[place] = descriptor, 0
    descriptor, times = _CLAIMED[place]
    _CLAIMED[place] = descriptor, times + 1
    try:
        yield
    finally:
        descriptor, times = _CLAIMED.pop(place)
        if times > 1:
            _CLAIMED[place] = descriptor, times - 1
        else:
            os.close(descriptor)


def check_target(path: str | Path) -> Path:
    """Check that a file can be written, as far as that can be seen without writing it: worth doing before long work.

    Parameters
    ----------
    path : str or Path
        The file to write.

    Raises
    ------
    InputError
        If it is a folder or a device, or lies in a folder that may not be written to.
    """
    path = Path(path)
    if os.path.exists(path) and not path.is_file():  # False, too, where nobody may look
        raise InputError(f"`{path}` is a {'folder' if path.is_dir() else 'device'}; expected a file to write")
    above = next(parent for parent in path.absolute().parents if os.path.exists(parent))
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
    text = dumps({"fedcollab": kind, "format": FORMAT, CHECKSUM: _ZEROS, **stamp, **content}) + "\n"
    write_bytes(path, text.replace(_ZEROS, hashlib.sha256(text.encode()).hexdigest(), 1).encode())


def digest(path: str | Path) -> str:
    """Return the SHA-256 checksum of a file's content in hexadecimal digits; what is no file is refused."""
    check_file(path)
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_made(path: str | Path) -> dict[str, Any] | None:
    """Return the settings and inputs that an artefact was made with; None if the file does not hold them."""
    content = read_json_file(path, "a fedcollab file")
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
        The content of the file, without the checksum.

    Raises
    ------
    InputError
        If the file does not exist, is not JSON, is of another kind or format, or does not fit its checksum.
    """
    text = read_text(path, f"a {kind} file", MOST_JSON)
    content = parse_json(text, str(path), f"a {kind} file")
    if not isinstance(content, dict) or "fedcollab" not in content:
        raise InputError(f"`{path}` is not a fedcollab file; expected a {kind} file")
    if content["fedcollab"] != kind:
        raise InputError(f"`{path}` is a {content['fedcollab']} file; expected a {kind} file")
    if content.get("format") != FORMAT:
        raise InputError(f"`{path}` has format {content.get('format')!r}; this version reads format {FORMAT}")
    if content.pop(CHECKSUM, None) is not None:
        _check_stamp(text, path)
    return content


def _check_stamp(text: str, path: str | Path) -> None:
    """Refuse an artefact whose checksum does not fit its text."""
    found = _STAMP.search(text)
    rest = text if found is None else text[: found.start(1)] + _ZEROS + text[found.end(1) :]
    if found is None or hashlib.sha256(rest.encode("utf-8", "surrogatepass")).hexdigest() != found[1]:
        raise InputError(
            f"`{path}` is damaged, or was changed after it was written: its checksum does not fit. Restore it, or make "
            f"it again (if you changed it on purpose, remove its line `{CHECKSUM}`)"
        )


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
