"""The appendix's table of training and test samples: counted in the clients that the scenarios make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedcollab.reproduce.cells import Cell
from fedcollab.reproduce.experiment import Experiment, paper
from fedcollab.reproduce.output import Output, Row, Table
from fedcollab.reproduce.setups import TITLES, Setup
from fedcollab.reproduce.workspace import Workspace


class Quantities(Experiment):
    """Large clients are the first half, small ones the second."""

    name = "quantities"
    title = "Training and test samples of large and small clients"
    place = "Table 4, Appendix B.1"
    time = "10 s"

    def cells(self, workspace: Workspace) -> Iterator[Cell]:
        """Yield one cell a scenario: the counts do not depend on the seed."""
        yield from map(counts_cell, workspace.chosen(self.scenarios).values())

    def output(self, workspace: Workspace) -> Output:
        """Return training / test samples, ours and the paper's."""
        rows: list[Row] = []
        for scenario, setup in workspace.chosen(self.scenarios).items():
            found = workspace.get(counts_cell(setup))
            if found is None:
                continue
            train, test = (np.array(found[key]).sum(axis=1) for key in ("train", "test"))
            half = len(train) // 2
            for size, part in (("large", slice(0, half)), ("small", slice(half, None))):
                ours = f"{_range(train[part])} / {_range(test[part])}"
                known = "{:,} / {:,}".format(*paper()["quantities"][scenario][size])
                rows.append((TITLES[scenario], size, ours, known, "yes" if ours == known else "no"))
        columns = ("scenario", "clients", "training / test", "paper", "equal")
        return Output([Table("Samples of each client", columns, rows)] if rows else [])


def counts_cell(setup: Setup) -> Cell:
    """Return the cell of the label counts of a scenario's clients."""
    return Cell("counts", setup.file("counts", 0), setup.data(0))


def _range(values: Any) -> str:
    """Return the smallest and largest of some numbers as text."""
    low, high = int(min(values)), int(max(values))
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
