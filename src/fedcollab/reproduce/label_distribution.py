"""The figure of the label-shift clients: how many samples of which label each has."""

from __future__ import annotations

from collections.abc import Iterator

from fedcollab.reproduce import pictures
from fedcollab.reproduce.cells import Cell
from fedcollab.reproduce.experiment import Experiment
from fedcollab.reproduce.lab import Lab
from fedcollab.reproduce.output import Output
from fedcollab.reproduce.quantities import counts_cell


class LabelDistribution(Experiment):
    """Labels by colour, quantities by height (large and small clients on scales of their own)."""

    name = "label-distribution"
    title = "Label and quantity distribution of the label-shift clients"
    place = "Figure 3, Section 5.1"
    time = "5 s"
    scenarios = ("label-shift",)

    def cells(self, lab: Lab) -> Iterator[Cell]:
        """The label counts."""
        yield counts_cell(lab.setups["label-shift"])

    def output(self, lab: Lab) -> Output:
        """Stacked bars."""
        found = lab.get(counts_cell(lab.setups["label-shift"]))
        if found is None:
            return Output()
        return Output(charts={self.name: pictures.label_bars(found["train"])})
