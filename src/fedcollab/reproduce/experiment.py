"""What every table and figure of the paper is here: cells to compute, and an output made from those that are there."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import resources
from typing import Any, ClassVar

from fedcollab.progress import Progress
from fedcollab.reproduce.cells import Cell
from fedcollab.reproduce.output import Output, provenance
from fedcollab.reproduce.setups import SCENARIOS
from fedcollab.reproduce.workspace import Workspace

Say = Callable[[str], None]


class Experiment:
    """One table or figure.

    Attributes
    ----------
    name, title : str
        The name of the command, and what it shows.
    place : str
        Where it stands in the paper.
    time : str
        How long it takes on the reference machine (2 cores, no GPU).
    scenarios : tuple of str
        Those it can be run on.
    page : str
        The page in docs/ that shows it, where it has one of its own.
    shown_in : tuple of str
        Other pages that show parts of it, as paths from docs/.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    place: ClassVar[str]
    time: ClassVar[str]
    scenarios: ClassVar[tuple[str, ...]] = SCENARIOS
    page: ClassVar[str] = ""
    shown_in: ClassVar[tuple[str, ...]] = ()

    def cells(self, workspace: Workspace) -> Iterator[Cell]:
        """Yield the cells that it needs, as far as they can be named yet."""
        yield from ()

    def compute(self, workspace: Workspace, *, jobs: int, fresh: bool, progress: Progress, say: Say) -> None:
        """Compute what it keeps in files of its own, beside the cells; most have none."""

    def ran(self, workspace: Workspace) -> str:
        """Return how many cells there are, and when, where and for how long they were computed."""
        return provenance(workspace.records(list(self.cells(workspace))))

    def reduced(self, workspace: Workspace) -> list[str]:
        """Return what a quick run leaves out, in words."""
        if workspace.choices.size == "full":
            return []
        return [f"{name}: {setup.notes[-1]}" for name, setup in workspace.chosen(self.scenarios).items()]

    def output(self, workspace: Workspace) -> Output:
        """Return what the cells that are there give; cells that are not are left out, never guessed."""
        raise NotImplementedError


@lru_cache(maxsize=1)
def paper() -> dict[str, Any]:
    """Return the numbers that the paper publishes, by experiment."""
    return tomllib.loads(resources.files("fedcollab.reproduce").joinpath("paper.toml").read_text(encoding="utf-8"))
