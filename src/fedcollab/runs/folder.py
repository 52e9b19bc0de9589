"""The folder of a run: its files, run.json, and changes of several files at once.

What the files mean, and whether they still answer the question, is `runs.run`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from fedcollab import files
from fedcollab.errors import InputError
from fedcollab.parsing import complete
from fedcollab.runs import transaction


class _Client(TypedDict, total=False):
    """What is read again of what a client said of itself."""

    quantity: int
    label_counts: dict[str, int] | None
    min_coalition: int
    fingerprint: str | None


class _Settings(TypedDict, total=False):
    """What is read again of the settings that a run was started with."""

    source: str | None
    seed: int
    label: str | None
    drop: list[str]
    columns: list[str] | str | None
    label_map: dict[str, str] | None
    id: str | None


class _Config(TypedDict, total=False):
    """What is read again of run.json, which may be from anyone."""

    settings: _Settings
    command: str | None
    started: str
    versions: dict[str, str]
    clients: dict[str, _Client]
    absent: list[str]


class RunFolder:
    """The files of a run.

    Parameters
    ----------
    path : str or Path
        The folder; it need not exist yet.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def make_folder(self) -> None:
        """Make the folder of the run, if it is not there yet."""
        files.check_target(self.file("run.json"))
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"`run_dir` (={str(self.path)!r}) cannot be made: {error.strerror}") from None

    def working(self) -> AbstractContextManager[None]:
        """Keep other processes from changing this run meanwhile; one that tries is refused (see `files.claim`)."""
        return files.claim(self.path)

    def file(self, name: str) -> Path:
        """Return the path of a file of this run."""
        return self.path / name

    def has(self, name: str) -> bool:
        """Return whether the run has a file or folder of this name."""
        return self.file(name).exists()

    def config(self) -> dict[str, Any]:
        """Return the content of run.json; an empty dict where there is none."""
        if not self.has("run.json"):
            return {}
        content = files.read_json(self.file("run.json"), "run")
        with complete(self.file("run.json"), "run"):
            msgspec.convert(content, _Config)
        return content

    def write_config(self, content: Mapping[str, Any]) -> None:
        """Write run.json; keys that are not in `content` keep their value."""
        files.write_json(self.file("run.json"), "run", self.config_with(content))

    def config_with(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content of run.json with the keys of `content` replaced."""
        return {key: value for key, value in {**self.config(), **content}.items() if key not in ("fedcollab", "format")}

    def set_aside(self, *names: str) -> Path | None:
        """Move files or folders of stages that will be computed again into a folder, so that nothing computed is lost.

        Parameters
        ----------
        *names : str
            Moved in this order: name last what the others were made from, so that a run that is killed half-way makes
            them again.

        Returns
        -------
        Path or None
            The folder; None where none of them is there.
        """
        there = [name for name in names if self.has(name)]
        if not there:
            return None
        target = self.path / "set-aside" / str(1 + sum(1 for _ in self.path.glob("set-aside/*")))
        for name in there:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            self.file(name).rename(target / name)
        return target

    def digest(self, name: str) -> str:
        """Return the SHA-256 of a file of this run."""
        return files.digest(self.file(name))

    def made_of(self, name: str, key: str) -> Any:
        """Return one of the inputs that an artefact was made of; None if it does not say.

        Parameters
        ----------
        name : str
            The artefact's file.
        key : str
            The input.
        """
        made = files.read_made(self.file(name))
        return None if made is None else made["inputs"].get(key)

    def recover(self) -> None:
        """Complete a change of several files that is ready, and remove one that is not."""
        if self.has(transaction.NEXT):
            with self.working():
                transaction.complete(self.path)

    def replace_files(self, write: Callable[[Path], None], aside: Mapping[str, str]) -> None:
        """Change several files at once: a process that is killed leaves the old state, or one that `recover` completes.

        Parameters
        ----------
        write : callable
            Writes the new files into the folder that it is given, under their names in the run.
        aside : mapping
            Files that no longer hold, and where they are moved to.
        """
        with self.working():
            transaction.replace(self.path, write, aside)

    def empty(self) -> None:
        """Remove everything in the folder of the run."""
        for item in sorted(self.path.rglob("*"), reverse=True):
            item.rmdir() if item.is_dir() and not item.is_symlink() else item.unlink()
