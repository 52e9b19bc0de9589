"""What a silo keeps between calls, on its own disk: a safetensors file for each procedure, written whole or not at all.

A new process reads it for every message, so it is read when asked for and written back only where it changed. All files
are readable by their owner alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from urllib.parse import quote, unquote

from fedcollab.errors import InputError
from fedcollab.files import sync_folder, write_bytes
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
        """Return 32 random bytes of this silo's own, drawn once.

        Raises
        ------
        InputError
            If the file holds something else: with a key that others can guess, a silo divides its samples as they can.
        """
        path = self.folder / KEY
        if not path.exists():
            drawn = self.folder / f"{KEY}.{os.getpid()}.{threading.get_ident()}"
            with private_files():
                write_bytes(drawn, os.urandom(32), private=True)
            try:  # whole under its name or not at all, whoever is killed; of two processes the first one's key stays
                os.link(drawn, path)
            except FileExistsError:
                pass
            except OSError:  # a file system without links
                os.replace(drawn, path)
            drawn.unlink(missing_ok=True)
            sync_folder(self.folder)
        key = path.read_bytes()
        if len(key) != 32:
            raise InputError(
                f"`{path}` has {len(key)} bytes; a silo's key has 32. Restore it, or remove it: the silo then draws a "
                "new one, and divides its samples in another way"
            )
        return key

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
