"""Cells: one run of one method on one scenario and seed, kept as one small JSON file that says how it was made.

A cell's file name can be read (`label-shift/fedavg_global_r200_s0.json`); its content carries every setting that
decides the result, the date, the machine and the CPU seconds it took. A file that was made with other settings than
those asked for counts as absent and is made again. Files are written whole or not at all, and a cell that another
process is computing is left to it, so that two commands can share one folder. A long computation saves checkpoints in a
scratch folder: one that was interrupted goes on from there.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from fedcollab import __version__, files
from fedcollab.errors import InputError

try:
    import fcntl
except ImportError:  # no such locks on Windows: two commands may compute a cell twice, which harms nothing
    fcntl = None  # type: ignore[assignment]

Result = dict[str, Any]
PACKAGES = ("numpy", "torch", "scikit-learn", "pandas")


@dataclass(frozen=True, eq=False)
class Cell:
    """A result to compute.

    Parameters
    ----------
    kind : str
        What computes it, one of `runner.KINDS`.
    name : str
        The file, without its suffix.
    settings : mapping
        Everything that the result depends on.
    """

    kind: str
    name: str
    settings: Mapping[str, Any]

    def comparable(self) -> dict[str, Any]:
        """Return kind and settings as they read back from JSON."""
        values: dict[str, Any] = json.loads(files.dumps({"kind": self.kind, **self.settings}))
        return values


@dataclass(frozen=True, eq=False)
class Record:
    """The content of a cell's file: the result, its settings, and when, where and in how many CPU seconds."""

    result: Result
    settings: dict[str, Any]
    date: str
    machine: str
    seconds: float


class Scratch:
    """A folder for the checkpoints of an unfinished cell, which also counts the CPU seconds of all who worked on it.

    Parameters
    ----------
    folder : Path
        The folder; it need not exist.
    key : str
        A checksum of the work. What work with another key left in the folder is deleted.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self.folder = folder
        begun, self._spent = folder / "key", folder / "seconds"
        if not begun.exists() or begun.read_text() != key:
            self.clear()
            files.write_bytes(begun, key.encode())
        self._before = float(self._spent.read_text()) if self._spent.exists() else 0.0
        self._started = time.process_time()

    @property
    def seconds(self) -> float:
        """CPU seconds up to now; what else the machine does at the time does not count."""
        return self._before + time.process_time() - self._started

    def progress(self, done: int, total: int) -> None:
        """A progress callback that writes the CPU seconds down, in case the computation is interrupted."""
        files.write_bytes(self._spent, f"{self.seconds:.1f}".encode())

    def clear(self) -> None:
        """Delete the folder with all that is in it."""
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(eq=False)
class Cells:
    """A folder of cells.

    Parameters
    ----------
    folder : Path
        The folder; it need not exist.
    """

    folder: Path
    _read: dict[str, Record] = field(default_factory=dict)

    def path(self, cell: Cell) -> Path:
        """Return the file of a cell."""
        return self.folder / f"{cell.name}.json"

    def get(self, cell: Cell) -> Record | None:
        """Return a cell's record, or None if it was not computed, or with other settings."""
        record = self._read.get(cell.name)
        if record is None:
            if not self.path(cell).exists():
                return None
            content = files.read_json(self.path(cell), "cell")
            try:
                keys = ("result", "settings", "date", "machine", "seconds")
                record = self._read[cell.name] = Record(*(content[key] for key in keys))
            except KeyError as error:
                raise InputError(f"`{self.path(cell)}` lacks {error}; delete it to compute the cell again") from None
        return record if record.settings == cell.comparable() else None

    def put(self, cell: Cell, result: Result, seconds: float) -> None:
        """Write the file of a cell: its `result`, and the CPU `seconds` it took."""
        content = {
            "settings": cell.comparable(),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "machine": machine(),
            "versions": versions(),
            "seconds": round(seconds, 1),
            "result": result,
        }
        files.write_json(self.path(cell), "cell", content)
        self.forget(cell)

    def scratch(self, cell: Cell) -> Scratch:
        """Return the scratch folder of a cell; with other settings or other code it is emptied."""
        name = cell.name.replace("/", "_") + ("" if fcntl else f"_{os.getpid()}")  # without locks: one each
        text = json.dumps([cell.comparable(), versions(), _code()], sort_keys=True)
        return Scratch(self.folder / ".unfinished" / name, hashlib.sha256(text.encode()).hexdigest())

    def forget(self, cell: Cell) -> None:
        """Read the file of a cell anew the next time: another process may have written it."""
        self._read.pop(cell.name, None)

    @contextmanager
    def claim(self, cell: Cell) -> Iterator[bool]:
        """Give whether this process may compute the cell now; the claim of a process that died ends with it."""
        if fcntl is None:
            yield True
            return
        path = self.folder / ".claims" / cell.name.replace("/", "_")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
                return
            yield True


@lru_cache(maxsize=1)
def _code() -> str:
    """Return a checksum of the code that trains: a checkpoint of one version is of no use to another."""
    digest = hashlib.sha256()
    for part in ("training", "baselines"):
        for path in sorted((Path(__file__).parents[1] / part).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Return the versions of fedcollab, of Python, and of the packages that can change a result."""
    own = {"fedcollab": __version__, "python": platform.python_version()}
    return own | {package: metadata.version(package) for package in PACKAGES}


def machine() -> str:
    """Return the machine in a few words: cores, memory, GPU; no name."""
    import torch

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30 if hasattr(os, "sysconf") else 0.0
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {gpu}"
