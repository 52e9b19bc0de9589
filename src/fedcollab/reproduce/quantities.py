"""The appendix's table of training and test samples: counted in the clients that the scenarios make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedcollab.reproduce.cells import Cell
from fedcollab.reproduce.experiment import Experiment, paper
from fedcollab.reproduce.lab import Lab
from fedcollab.reproduce.output import Output, Table
from fedcollab.reproduce.setups import TITLES, Setup


class Quantities(Experiment):
    """Large clients are the first half, small ones the second."""

    name = "quantities"
    title = "Training and test samples of large and small clients"
    place = "Table 4, Appendix B.1"
    time = "10 s"

    def cells(self, lab: Lab) -> Iterator[Cell]:
        """One seed a scenario: the counts do not depend on it."""
        for scenario in lab.scenarios(self.scenarios):
            yield counts_cell(lab.setups[scenario])

    def output(self, lab: Lab) -> Output:
        """Training / test, ours and the paper's."""
        rows: list[tuple[Any, ...]] = []
        for scenario in lab.scenarios(self.scenarios):
            found = lab.get(counts_cell(lab.setups[scenario]))
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
    """The label counts of a scenario's clients."""
    return Cell("counts", setup.file("counts", 0), setup.data(0))


def _range(values: Any) -> str:
    low, high = int(min(values)), int(max(values))
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
