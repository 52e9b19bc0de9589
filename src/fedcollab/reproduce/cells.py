"""Cells: one run of one method on one scenario and seed, kept as one small JSON file that says how it was made.

A cell's file name can be read (`label-shift/fedavg_global_r200_s0.json`); its content carries every setting that
decides the result, the date, the machine and the CPU seconds it took. A file that was made with other settings than
those asked for counts as absent and is made again. Files are written whole or not at all, and a cell that another
process is computing is left to it, so that two commands can share one folder. A long cell lays down on its desk what it
has done so far: one that was interrupted goes on from there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedcollab import files as artefact
from fedcollab.errors import InputError
from fedcollab.runs.directory import now, versions

try:
    import fcntl
except ImportError:  # no such locks on Windows: two commands may compute a cell twice, which harms nothing
    fcntl = None  # type: ignore[assignment]

Result = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Cell:
    """What to compute: `kind` names the function (`compute.KINDS`), `name` the file, `settings` all it depends on."""

    kind: str
    name: str
    settings: Mapping[str, Any]

    def plain(self) -> dict[str, Any]:
        """The settings as they read back from JSON."""
        values: dict[str, Any] = json.loads(artefact.dumps({"kind": self.kind, **self.settings}))
        return values


@dataclass(frozen=True, eq=False)
class Kept:
    """A cell's file: the result, and when, where and for how many CPU seconds."""

    result: Result
    settings: dict[str, Any]
    date: str
    machine: str
    seconds: float


class Desk:
    """What a cell has done so far: a `folder` for checkpoints, and the CPU seconds of all who worked at it.

    `key` tells the work; what another work left in the folder is thrown away.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self.folder = folder
        begun, self._spent = folder / "key", folder / "seconds"
        if not begun.exists() or begun.read_text() != key:
            self.clear()
            artefact.write_bytes(begun, key.encode())
        self._before = float(self._spent.read_text()) if self._spent.exists() else 0.0
        self._started = time.process_time()

    @property
    def seconds(self) -> float:
        """CPU seconds up to now; what else the machine does at the time does not count."""
        return self._before + time.process_time() - self._started

    def note(self, done: int, total: int) -> None:
        """A training's progress: what it has cost is written down, for the case that it is interrupted."""
        artefact.write_bytes(self._spent, f"{self.seconds:.1f}".encode())

    def clear(self) -> None:
        """Nothing to go on from."""
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(eq=False)
class Cells:
    """A folder of cells."""

    folder: Path
    _read: dict[str, Kept] = field(default_factory=dict)

    def path(self, cell: Cell) -> Path:
        """Where a cell is kept."""
        return self.folder / f"{cell.name}.json"

    def get(self, cell: Cell) -> Kept | None:
        """What was computed, or None where it was not, or with other settings."""
        kept = self._read.get(cell.name)
        if kept is None:
            if not self.path(cell).exists():
                return None
            content = artefact.read_json(self.path(cell), "cell")
            try:
                keys = ("result", "settings", "date", "machine", "seconds")
                kept = self._read[cell.name] = Kept(*(content[key] for key in keys))
            except KeyError as error:
                raise InputError(f"`{self.path(cell)}` lacks {error}; delete it to compute the cell again") from None
        return kept if kept.settings == cell.plain() else None

    def put(self, cell: Cell, result: Result, seconds: float) -> None:
        """Keep a result."""
        content = {
            "settings": cell.plain(),
            "date": now()[:10],
            "machine": machine(),
            "versions": versions(),
            "seconds": round(seconds, 1),
            "result": result,
        }
        artefact.write_json(self.path(cell), "cell", content)
        self.forget(cell)

    def desk(self, cell: Cell) -> Desk:
        """Where the cell is worked on; with other settings or other code the work begins anew."""
        name = cell.name.replace("/", "_") + ("" if fcntl else f"_{os.getpid()}")  # without locks: nobody shares
        text = json.dumps([cell.plain(), versions(), _code()], sort_keys=True)
        return Desk(self.folder / ".unfinished" / name, hashlib.sha256(text.encode()).hexdigest())

    def forget(self, cell: Cell) -> None:
        """Look at the file again: another process may have written it."""
        self._read.pop(cell.name, None)

    @contextmanager
    def claim(self, cell: Cell) -> Iterator[bool]:
        """Whether this process may compute the cell now; another one that died gives its claim up by that."""
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
    """A checksum of the code that trains: what one version has begun, another must not end."""
    digest = hashlib.sha256()
    for part in ("training", "baselines"):
        for path in sorted((Path(__file__).parents[1] / part).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def machine() -> str:
    """The machine in a few words: cores, memory, GPU; no name."""
    import torch

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30 if hasattr(os, "sysconf") else 0.0
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {gpu}"
