"""What every table and figure of the paper is here: cells to compute, and an output made from those that are there."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import lru_cache
from importlib import resources
from typing import Any, ClassVar

from fedcollab.reproduce.cells import Cell
from fedcollab.reproduce.lab import Lab
from fedcollab.reproduce.output import Output
from fedcollab.reproduce.setups import SCENARIOS


class Experiment:
    """One table or figure.

    name, title   how it is asked for, and what it shows
    place         where it stands in the paper
    scenarios     those it can be run on; None where it has none
    time          how long it takes on the reference machine (2 cores, no GPU)
    page          the page in docs/ that shows it, where it has one of its own
    """

    name: ClassVar[str]
    title: ClassVar[str]
    place: ClassVar[str]
    time: ClassVar[str]
    scenarios: ClassVar[tuple[str, ...]] = SCENARIOS
    page: ClassVar[str] = ""

    def cells(self, lab: Lab) -> Iterator[Cell]:
        """The cells that it needs, as far as they can be named yet."""
        yield from ()

    def reduced(self, lab: Lab) -> list[str]:
        """What a quick run leaves out, in words."""
        if lab.asked.size == "full":
            return []
        return [f"{name}: {lab.setups[name].notes[-1]}" for name in lab.scenarios(self.scenarios) if name in lab.setups]

    def output(self, lab: Lab) -> Output:
        """What the cells that are there give; cells that are not are left out, never guessed."""
        raise NotImplementedError


@lru_cache(maxsize=1)
def paper() -> dict[str, Any]:
    """The paper's figures."""
    return tomllib.loads(resources.files("fedcollab.reproduce").joinpath("paper.toml").read_text(encoding="utf-8"))
