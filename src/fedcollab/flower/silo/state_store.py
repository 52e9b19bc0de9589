"""What a silo keeps between calls, on its own disk: a safetensors file for each procedure, written whole or not at all.

A new process reads it for every message, so it is read when asked for and written back only where it changed. All files
are readable by their owner alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

from fedcollab.files import write_bytes
from fedcollab.flower.keys import private_files
from fedcollab.wire.message import Message, pack, unpack

SUFFIX = ".safetensors"
KEY = "silo.key"


class StateStore(MutableMapping[str, Message]):
    """A silo's state, as a dictionary whose changes `commit` writes to a folder.

    Parameters
    ----------
    folder : Path
        The folder; it is made when something is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._values: dict[str, Message] = {}  # those that were read or set, in the order in which they were
        self._stored: dict[str, bytes] = {}  # the content of the files that were read or written
        self._deleted: set[str] = set()

    def __getitem__(self, key: str) -> Message:
        if key not in self._values:
            if key in self._deleted or not self._file(key).is_file():
                raise KeyError(key)
            self._stored[key] = self._file(key).read_bytes()
            self._values[key] = unpack(self._stored[key])
        return self._values[key]

    def __setitem__(self, key: str, value: Message) -> None:
        self._values.pop(key, None)  # last set, last written: what a later part relies on is on disk before it
        self._values[key] = value
        self._deleted.discard(key)

    def __delitem__(self, key: str) -> None:
        self[key]
        del self._values[key]
        self._deleted.add(key)

    def __iter__(self) -> Iterator[str]:
        stored = {unquote(path.name.removesuffix(SUFFIX)) for path in self.folder.glob(f"*{SUFFIX}")}
        return iter(sorted((stored | self._values.keys()) - self._deleted))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def key(self) -> bytes:
        """Return 32 random bytes of this silo's own, drawn once."""
        path = self.folder / KEY
        with private_files(), suppress(FileExistsError):
            self.folder.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.write(os.urandom(32))
        return path.read_bytes()

    def commit(self) -> None:
        """Write what changed to disk."""
        with private_files():
            for key, value in self._values.items():
                content = pack(value)
                if content != self._stored.get(key):
                    write_bytes(self._file(key), content)
                    self._stored[key] = content
        for key in self._deleted:
            self._file(key).unlink(missing_ok=True)

    def snapshot(self) -> tuple[dict[str, Message], set[str]]:
        """Return what has been read, set and deleted so far, for `restore`."""
        return dict(self._values), set(self._deleted)

    def restore(self, before: tuple[dict[str, Message], set[str]]) -> None:
        """Forget what was set and deleted since a snapshot.

        Parameters
        ----------
        before : tuple
            What `snapshot` returned.
        """
        self._values, self._deleted = dict(before[0]), set(before[1])

    def _file(self, key: str) -> Path:
        """Return the file of one value; whatever the key is, it lies in the folder."""
        return self.folder / (quote(key, safe="") + SUFFIX)
