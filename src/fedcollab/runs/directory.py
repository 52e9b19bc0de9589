"""The run directory: one run, one folder, readable by people and programs. Never pickle.

    run.json             what was asked: command, settings, seed, versions, date, and what each client said of itself
    schema.json          how raw samples become model inputs
    distances.json       stage 1
    path.json            the coalitions for every C
    collaboration.json   stage 2
    training/NAME/       stage 3, once per way of training: result, metrics by round, models
    absences.jsonl       who did not answer, when and why
    set-aside/           stages that were made again because a client that had been absent came back
    report.html          what to show to the partners

A stage whose file is there is not computed again: an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import datetime
import platform
import shlex
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from fedcollab import __version__, files as artefact
from fedcollab.errors import InputError

PACKAGES = ("numpy", "torch", "scikit-learn", "pandas")


class RunDirectory:
    """Where one run keeps what it was asked and what it found."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def open(cls, path: str | Path, settings: Mapping[str, Any], *, fresh: bool = False) -> RunDirectory:
        """Start a run, or go on with one that was started with the same settings.

        A folder with other settings, or with files that are no run, is left alone with a clear line; `fresh` empties a
        run (and only a run) first.
        """
        run = cls(path)
        wanted = _comparable(settings)
        artefact.sweep(run.file("run.json"))
        if run.path.exists() and not run.path.is_dir():
            raise InputError(f"`--out` (={str(path)!r}) is a file; expected a folder")
        if run.file("run.json").exists():
            if fresh:
                run._empty()
            elif run.config()["settings"] != wanted:
                differing = [key for key, value in wanted.items() if run.config()["settings"].get(key) != value]
                raise InputError(
                    f"`--out` (={str(path)!r}) holds a run with other settings ({', '.join(differing) or 'fewer'}); "
                    "give another folder, or --fresh to start over"
                )
            else:
                return run
        elif run.path.is_dir() and any(run.path.iterdir()):
            raise InputError(f"`--out` (={str(path)!r}) is not empty and holds no run; give another folder")
        artefact.check_target(run.file("run.json"))
        run.path.mkdir(parents=True, exist_ok=True)
        run.write_config({"settings": wanted, "command": command(), "started": now(), "versions": versions()})
        return run

    def file(self, name: str) -> Path:
        """A file of this run."""
        return self.path / name

    def config(self) -> dict[str, Any]:
        """What was asked."""
        return artefact.read_json(self.file("run.json"), "run")

    def write_config(self, content: Mapping[str, Any]) -> None:
        """Record what was asked, or add to it."""
        known = self.config() if self.file("run.json").exists() else {}
        merged = {key: value for key, value in {**known, **content}.items() if key not in ("fedcollab", "format")}
        artefact.write_json(self.file("run.json"), "run", merged)

    def has(self, name: str) -> bool:
        """Whether a stage left its file."""
        return self.file(name).exists()

    def set_aside(self, *names: str) -> None:
        """Move stages that are to be made again into a folder of their own: nothing that was computed is lost.

        In this order: name what the others were made of last, so that whoever is killed half-way makes them again.
        """
        there = [name for name in names if self.has(name)]
        if not there:
            return
        number = 1 + sum(1 for _ in self.path.glob("set-aside/*"))
        target = self.path / "set-aside" / str(number)
        target.mkdir(parents=True)
        for name in there:
            self.file(name).rename(target / name)

    def _empty(self) -> None:
        for item in sorted(self.path.rglob("*"), reverse=True):
            item.rmdir() if item.is_dir() and not item.is_symlink() else item.unlink()


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def command() -> str:
    """The command line that started this process, as a person would type it.

    Of an absolute path only the last part is kept: the run is shown to others, and where the data lie is not theirs to
    know.
    """
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
    program = Path(sys.argv[0]).name
    return shlex.join(["fedcollab" if program in ("", "-c") else program, *words])


def versions() -> dict[str, str]:
    """What ran: fedcollab, Python, and the packages whose version can change a figure."""
    found = {"fedcollab": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _comparable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they will read back from JSON."""
    import json

    plain: dict[str, Any] = json.loads(artefact.dumps(dict(settings)))
    return plain
