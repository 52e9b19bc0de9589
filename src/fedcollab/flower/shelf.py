"""What a silo keeps between calls, on its own disk: a safetensors file for each procedure, written whole or not at all.

A new process reads it for every message, so it is read when asked for and written back only where it changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

from fedcollab.files import write_bytes
from fedcollab.wire.message import Message, pack, unpack

SUFFIX = ".safetensors"
KEY = "silo.key"


class Shelf(MutableMapping[str, Message]):
    """A silo's state in a folder; `commit` writes what changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held: dict[str, Message] = {}
        self._read: dict[str, bytes] = {}
        self._gone: set[str] = set()

    def __getitem__(self, key: str) -> Message:
        if key not in self._held:
            if key in self._gone or not self._file(key).is_file():
                raise KeyError(key)
            self._read[key] = self._file(key).read_bytes()
            self._held[key] = unpack(self._read[key])
        return self._held[key]

    def __setitem__(self, key: str, value: Message) -> None:
        self._held.pop(key, None)  # last set, last written: what a later part relies on is on disk before it
        self._held[key] = value
        self._gone.discard(key)

    def __delitem__(self, key: str) -> None:
        self[key]
        del self._held[key]
        self._gone.add(key)

    def __iter__(self) -> Iterator[str]:
        stored = {unquote(path.name.removesuffix(SUFFIX)) for path in self.folder.glob(f"*{SUFFIX}")}
        return iter(sorted((stored | self._held.keys()) - self._gone))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def key(self) -> bytes:
        """32 random bytes of this silo's own, drawn once."""
        path = self.folder / KEY
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
                os.write(handle, os.urandom(32))
                os.close(handle)
        return path.read_bytes()

    def commit(self) -> None:
        """Write what changed."""
        for key, value in self._held.items():
            content = pack(value)
            if content != self._read.get(key):
                write_bytes(self._file(key), content)
                self._read[key] = content
        for key in self._gone:
            self._file(key).unlink(missing_ok=True)

    def _file(self, key: str) -> Path:
        return self.folder / (quote(key, safe="") + SUFFIX)
