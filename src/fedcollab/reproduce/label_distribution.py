"""The figure of the label-shift clients: how many samples of which label each has."""

from __future__ import annotations

from collections.abc import Iterator

from fedcollab.reproduce import pictures
from fedcollab.reproduce.cells import Cell
from fedcollab.reproduce.experiment import Experiment
from fedcollab.reproduce.output import Output
from fedcollab.reproduce.quantities import counts_cell
from fedcollab.reproduce.workspace import Workspace


class LabelDistribution(Experiment):
    """Labels by colour, quantities by height (large and small clients on scales of their own)."""

    name = "label-distribution"
    title = "Label and quantity distribution of the label-shift clients"
    place = "Figure 3, Section 5.1"
    time = "5 s"
    scenarios = ("label-shift",)

    def cells(self, workspace: Workspace) -> Iterator[Cell]:
        """Yield the cell of the label counts."""
        yield counts_cell(workspace.setups["label-shift"])

    def output(self, workspace: Workspace) -> Output:
        """Return the label counts as stacked bars."""
        found = workspace.get(counts_cell(workspace.setups["label-shift"]))
        return Output() if found is None else Output(charts={self.name: pictures.label_bars(found["train"])})
