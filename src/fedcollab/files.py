"""Results as files: JSON that a person can read, written whole or not at all.

Every artefact is an object with `"fedcollab": KIND` and `"format": 1` first, so that a file handed to the wrong
command is recognised. Arrays become nested lists; matrices keep one row a line.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import tempfile
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


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file atomically: a reader sees the old content or the new one, never half of it."""
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
            os.chmod(temporary, 0o666 & ~umask)
            if fcntl:  # while it is locked: nobody takes it for a dead writer's
                os.replace(temporary, path)
        if not fcntl:
            os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def sweep(path: str | Path) -> None:
    """Remove what writers of this file that were killed left beside it: a living one holds a lock."""
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
    """A new locked file beside this one."""
    while True:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=UNFINISHED)
        lock(handle)
        if os.fstat(handle).st_nlink:  # else swept away before it was locked
            return handle, temporary
        os.close(handle)


def lock(descriptor: int) -> None:
    """One writer at a time, where the system can do that: some network file systems cannot."""
    if fcntl:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)


def check_target(path: str | Path) -> Path:
    """A path that a file can be written to, as far as that can be seen before: worth asking before long work."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise InputError(f"`{path}` is a {'folder' if path.is_dir() else 'device'}; expected a file to write")
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise InputError(f"`{path}` cannot be written: `{above}` is not a folder that you may write to")
    return path


def write_json(path: str | Path, kind: str, content: dict[str, Any]) -> None:
    """Save one artefact."""
    write_bytes(path, (dumps({"fedcollab": kind, "format": FORMAT, **content}) + "\n").encode())


def read_json(path: str | Path, kind: str) -> dict[str, Any]:
    """Load an artefact that `write_json` saved, or say in one line why that cannot be done."""
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
    """JSON for people: objects one key a line, lists of plain values on one line."""
    return _render(_plain(value), 0)


def _plain(value: Any) -> Any:
    """NumPy values as plain ones, and non-finite floats as null (JSON has no NaN)."""
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
