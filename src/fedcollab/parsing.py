"""Files that may come from anyone: read within stated limits, and refused with one line, never with a traceback.

    what                      limit
    a client's file           4 GiB, packed and unpacked; 100,000 columns; 1 MiB a field; 200,010 arrays in an NPZ file
    JSON of a run             256 MiB, 100 levels deep
    TOML                      1 MiB, 50 parts of a dotted key
    models (safetensors)      4 GiB
    lines of text, matrices   256 MiB

All of it takes time in proportion to the size of the file, and memory in proportion to the limit at most.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from fedcollab.errors import InputError, first_line

MIB = 1 << 20
#: a number in a file or a message that is neither NaN nor infinite
Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
#: the largest file of a client, and what it may unpack to
MOST_DATA = 4096 * MIB
#: the most columns of a client's table
MOST_COLUMNS = 100_000
#: the longest field of a CSV file, in bytes
MOST_FIELD = MIB
#: the most arrays in an NPZ file; a table has up to two for each column
MOST_ARRAYS = 2 * MOST_COLUMNS + 10
#: the largest JSON file, and how deep its lists and objects may be nested
MOST_JSON = 256 * MIB
MOST_DEPTH = 100
#: the largest TOML file, and the most parts of a dotted key
MOST_TOML = MIB
MOST_PARTS = 50

#: the largest text file of plain lines: a matrix of distances, a list of columns
MOST_TEXT = 256 * MIB

#: what reading content of a wrong kind or shape raises, where a loader takes it apart
MISFITS = (
    ArithmeticError,
    AttributeError,
    IndexError,
    KeyError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
_OPENING = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[{\]}]', re.DOTALL)
_DOTTED = re.compile(
    r"""(?:(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+)"""
    rf"{{{MOST_PARTS}}}"
)


def read_bytes(path: str | Path, what: str, most: int) -> bytes:
    """Read a file of at most so many bytes.

    Parameters
    ----------
    path : str or Path
        The file.
    what : str
        What it should be, with its article: "a scenario file (TOML)".
    most : int
        The largest size in bytes.

    Raises
    ------
    InputError
        If it does not exist, is no file, cannot be read or is larger.
    """
    path = Path(path)
    try:
        check_file(path, f"; expected {what}")
        with path.open("rb") as file:
            content = file.read(most + 1) if path.stat().st_size <= most else b"\0" * (most + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"`{path}` cannot be read: {error}") from None
    if len(content) > most:
        raise InputError(f"`{path}` cannot be read: it has more than {_size(most)}, the most for {what}")
    return content


def check_file(path: str | Path, expected: str = "") -> None:
    """Refuse what is no file, before it is opened: a pipe would be waited for.

    Parameters
    ----------
    path : str or Path
        The file.
    expected : str
        What the error line ends with: "; expected a scenario file".

    Raises
    ------
    InputError
        If it does not exist, is a folder or a device, or may not be looked at.
    """
    path = Path(path)
    try:
        if path.is_file():
            return
        there, link = path.exists(), path.is_symlink()
    except OSError as error:  # a folder that may not be looked into, a name that is too long
        raise InputError(f"`{path}` cannot be read: {error.strerror}{expected}") from None
    if not there:
        raise InputError(f"`{path}` {'is a link that leads nowhere' if link else 'does not exist'}{expected}")
    raise InputError(f"`{path}` cannot be read: it is a {'folder' if path.is_dir() else 'device'}{expected}")


def check_size(path: str | Path, most: int = MOST_DATA) -> None:
    """Refuse a file that is larger than allowed, before it is opened.

    Parameters
    ----------
    path : str or Path
        The file, which must exist.
    most : int
        The largest size in bytes.

    Raises
    ------
    InputError
        If it is larger.
    """
    size = Path(path).stat().st_size
    if size > most:
        raise InputError(f"`{path}` has {_size(size)}; a file may have at most {_size(most)}")


def read_text(path: str | Path, what: str, most: int) -> str:
    """Read a UTF-8 text file of at most so many bytes, without the mark that some editors begin it with."""
    content = read_bytes(path, what, most)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"`{path}` cannot be read: it is not UTF-8 (byte {error.start}); expected {what}") from None


def parse_json(text: str, where: str, what: str) -> Any:
    """Return the content of a JSON text.

    Parameters
    ----------
    text : str
        The text.
    where : str
        Where it comes from, for the error line.
    what : str
        What it should be, with its article.

    Returns
    -------
    object
        Plain values, dicts and lists, at most `MOST_DEPTH` levels deep.

    Raises
    ------
    InputError
        If it is not JSON, nested too deep, says something twice, or has a number with thousands of digits.

    Examples
    --------
    >>> parse_json('{"rounds": 3}', "setting", "an object")
    {'rounds': 3}
    >>> parse_json("[" * 200, "setting", "an object")
    Traceback (most recent call last):
        ...
    fedcollab.errors.InputError: `setting` is nested more than 100 levels deep; expected an object
    """
    try:
        _check_depth(text, where, what)
        return json.loads(text, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        raise InputError(f"`{where}` is not JSON (line {error.lineno}: {error.msg}); expected {what}") from None
    except InputError:
        raise
    except (ValueError, MemoryError, RecursionError) as error:
        reason = str(error).split(";")[0] or type(error).__name__
        raise InputError(f"`{where}` is not JSON ({reason}); expected {what}") from None


def read_json_file(path: str | Path, what: str) -> Any:
    """Return the content of a JSON file within the limits above; as `read_text` and `parse_json`."""
    return parse_json(read_text(path, what, MOST_JSON), str(path), what)


def parse_toml(path: str | Path, what: str, wrong: str = "is not TOML") -> dict[str, Any]:
    """Return the content of a TOML file.

    Parameters
    ----------
    path : str or Path
        The file.
    what : str
        What it should be, with its article.
    wrong : str
        What the error line says of a file that is not TOML.

    Raises
    ------
    InputError
        If the file cannot be read, is too large or is not TOML.
    """
    text = read_text(path, what, MOST_TOML).replace("\r\n", "\n")
    if _DOTTED.search(text):
        raise InputError(f"`{path}` {wrong}: it has a key of more than {MOST_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise InputError(f"`{path}` {wrong}: it is nested too deep") from None
    except Exception as error:  # TOMLDecodeError; and what tomllib lets through, as of dates that do not exist
        raise InputError(f"`{path}` {wrong}: {str(error).split(';')[0] or type(error).__name__}") from None


@contextmanager
def complete(path: str | Path, kind: str) -> Iterator[None]:
    """Turn what a loader raises over content of a wrong kind or shape into one line.

    Parameters
    ----------
    path : str or Path
        The file, for the error line.
    kind : str
        What it should be: "collaboration".

    Raises
    ------
    InputError
        In place of the error.
    """
    try:
        yield
    except InputError:
        raise
    except MISFITS as error:
        reason = first_line(error)[:200]
        reason = f"{reason} is missing" if isinstance(error, KeyError) else reason
        raise InputError(f"`{path}` is not a complete {kind} file ({reason})") from None


def names_in(content: Mapping[str, Any], key: str = "names") -> tuple[str, ...]:
    """Return a list of names from the content of a file.

    Parameters
    ----------
    content : mapping
        The content.
    key : str
        Where the names stand.

    Raises
    ------
    TypeError
        If there is no list of texts; `complete` makes one line of it.
    """
    names = content[key]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"`{key}` must be a list of names")
    return tuple(names)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; one that says something twice means one thing to one reader and another to the next."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"`{twice}` stands twice in one object")
    return found


def _check_depth(text: str, where: str, what: str) -> None:
    """Refuse a JSON text that is nested too deep; only one with more brackets than that needs looking at."""
    if text.count("[") + text.count("{") <= MOST_DEPTH:
        return
    depth = 0
    for found in _OPENING.finditer(text):
        first = text[found.start()]
        if first != '"':
            depth += 1 if first in "[{" else -1
            if depth > MOST_DEPTH:
                raise InputError(f"`{where}` is nested more than {MOST_DEPTH} levels deep; expected {what}")


def _size(count: int) -> str:
    return f"{count / MIB:,.0f} MiB" if count >= MIB else f"{count:,} bytes"
