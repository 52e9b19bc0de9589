"""The silo's own log: a line of JSON for every message, written to disk before its reply leaves. Only ever added to.

    h_n = SHA-256 of line n,      line n + 1 holds h_n as `previous`

Whoever changes, removes or inserts a line breaks the chain from there on. Lines cut off at the end show only to someone
who knows a later h: note down what `fedcollab silo log --verify` prints, or give it to a partner.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedcollab.errors import InputError
from fedcollab.files import lock
from fedcollab.wire.message import Message

FILE = "audit.jsonl"
START = "0" * 64
_BLOCK = 1 << 16


@dataclass(frozen=True)
class Entry:
    """One message and what came of it.

    Parameters
    ----------
    time : str
        When the reply was ready, in UTC.
    run : str
        The run that the message belongs to.
    action, purpose : str
        What was asked, and what was done, in words for the administrator.
    bytes_in, bytes_out : int
        The length of message and reply.
    received, sent : list of str
        The arrays of message and reply, as `name dtype[shape]`.
    partners : list of str
        The clients that, according to the server, train together with this one.
    outcome : str
        "answered", "refused" or "failed".
    why : str
        The reason, unless it was answered.
    digest : str
        SHA-256 of action and message: the same message again has the same.
    plan, step : str
        The approved plan that the message belongs to (empty without one), and its step.
    cost : dict of str to int
        What the answer took from the plan's budget.
    previous : str
        SHA-256 of the line before.
    """

    time: str
    run: str
    action: str
    purpose: str
    bytes_in: int
    bytes_out: int
    received: list[str]
    sent: list[str]
    partners: list[str]
    outcome: str
    why: str
    digest: str
    plan: str = ""
    step: str = ""
    cost: dict[str, int] = field(default_factory=dict)
    previous: str = START


class Audit:
    """The log file of one silo.

    Parameters
    ----------
    path : Path
        The file; it is made with the first entry.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: _Seen | None = None

    def add(self, entry: Entry) -> None:
        """Append an entry; it is on disk when this returns.

        Parameters
        ----------
        entry : Entry
            The entry; its `previous` is computed here.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = not self.path.exists()
        handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "r+b") as file:
            lock(file.fileno())
            last = next(_lines_backwards(file), b"")
            end = file.seek(0, os.SEEK_END)
            cut = end > 0 and not _ends_line(file, end)
            line = json.dumps({**asdict(entry), "previous": _hash(last)}, ensure_ascii=False).encode()
            file.write((b"\n" if cut else b"") + line + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if new:
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def latest(self) -> str:
        """Return the time of the newest entry; an empty text if there is none."""
        try:
            with self.path.open("rb") as file:
                return next((str(entry["time"]) for entry in map(_read, _lines_backwards(file)) if entry), "")
        except OSError:
            return ""

    def entries(self) -> list[dict[str, Any]]:
        """Return every entry, oldest first; a line that is incomplete because its writer was killed is left out."""
        return [entry for entry in map(_read, self._lines()) if entry is not None]

    def since(self, time: str) -> Iterator[dict[str, Any]]:
        """Yield the entries that are not older than this time, newest first.

        Lines that were read before are not read again: every message asks, and the log grows with every message.
        """
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            seen = self._seen
            if seen is None or time < seen.time or not seen.is_beginning_of(file):
                seen = self._seen = _Seen.of(file, time)
            unfinished = seen.go_on(file)
        for entry in (*unfinished, *reversed(seen.entries)):
            if entry["time"] < time:
                return
            yield entry

    def verify(self) -> tuple[int, str]:
        """Check that every line follows from the one before it.

        Returns
        -------
        count : int
            How many lines there are.
        last : str
            The hash of the last line.

        Raises
        ------
        InputError
            If a line was changed, removed or inserted.
        """
        last = START
        lines = self._lines()
        for number, line in enumerate(lines, start=1):
            entry = _read(line)
            if entry is None and number < len(lines) and _read(lines[number]) is None:
                raise InputError(f"`{self.path}` line {number} is not an entry: the log was changed")
            if entry is not None and entry["previous"] != last:
                raise InputError(f"`{self.path}` line {number} does not follow from line {number - 1}: it was changed")
            last = _hash(line)
        return len(lines), last

    def hashes(self) -> list[str]:
        """Return the hash of every line, so that one that was noted down can be looked up."""
        return [_hash(line) for line in self._lines()]

    def _lines(self) -> list[bytes]:
        try:
            return [line for line in self.path.read_bytes().split(b"\n") if line]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise InputError(f"`{self.path}` cannot be read: {error.strerror}") from None


@dataclass
class _Seen:
    """The part of a log that was read: entries that are not older than a time, and where the reading ended."""

    time: str
    end: int
    last: bytes = b""  # the line before `end`, by which a file that was put in this one's place is noticed
    entries: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, file: Any, time: str) -> _Seen:
        """Return the entries of the whole lines of a file that are not older than a time."""
        end = file.seek(0, os.SEEK_END)
        end -= 0 if not end or _ends_line(file, end) else len(next(_lines_backwards(file)))
        last, entries = b"", list[dict[str, Any]]()
        for line in _lines_backwards(file, end):
            last = last or line
            entry = _read(line)
            if entry is not None and entry["time"] < time:
                break
            if entry is not None:
                entries.append(entry)
        return cls(time, end, last, entries[::-1])

    def is_beginning_of(self, file: Any) -> bool:
        """Return whether a file still has what was read."""
        if file.seek(0, os.SEEK_END) < self.end:
            return False
        file.seek(max(0, self.end - len(self.last) - 1))
        return bool(file.read(len(self.last) + 1) == self.last + b"\n") if self.last else self.end == 0

    def go_on(self, file: Any) -> list[dict[str, Any]]:
        """Read what was added; return the entry of a last line whose writer was killed before its end, if it is one."""
        file.seek(self.end)
        *lines, rest = file.read().split(b"\n")
        for line in lines:
            self.end += len(line) + 1
            self.last = line or self.last
            entry = _read(line)
            if entry is not None:
                self.entries.append(entry)
        unfinished = _read(rest)
        return [] if unfinished is None else [unfinished]


def shapes(message: Message) -> list[str]:
    """Return the names, types and shapes of the arrays of a message.

    Examples
    --------
    >>> shapes({"w": np.zeros((2, 3), dtype=np.float32), "round": 1})
    ['w float32[2, 3]']
    """
    found = ((key, value) for key, value in message.items() if isinstance(value, np.ndarray))
    return [f"{key} {value.dtype}{list(value.shape)}" for key, value in found]


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest() if line else START


def _read(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    whole = isinstance(entry, dict) and isinstance(entry.get("previous"), str) and isinstance(entry.get("time"), str)
    return entry if whole else None


def _ends_line(file: Any, end: int) -> bool:
    file.seek(end - 1)
    ends: bool = file.read(1) == b"\n"
    return ends


def _lines_backwards(file: Any, end: int | None = None) -> Iterator[bytes]:
    """Yield the lines of a file (or of its part before `end`), last first, reading a block at a time."""
    position = file.seek(0, os.SEEK_END) if end is None else end
    rest = b""
    while position > 0:
        step = min(_BLOCK, position)
        position -= step
        file.seek(position)
        rest, *whole = (file.read(step) + rest).split(b"\n")
        yield from (line for line in reversed(whole) if line)
    if rest:
        yield rest
