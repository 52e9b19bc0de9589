"""The picture of the method: clients, distances, coalitions, models; drawn from a real run of label shift."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedcollab.reproduce import pictures
from fedcollab.reproduce.accuracy import FEDCOLLAB, LOCAL, cell_of
from fedcollab.reproduce.cells import Cell
from fedcollab.reproduce.experiment import Experiment
from fedcollab.reproduce.lab import Lab
from fedcollab.reproduce.output import Output
from fedcollab.reproduce.quantities import counts_cell
from fedcollab.reproduce.table_1 import Table1

WAYS = {"alone": LOCAL, "everyone together": Table1.rows[1], "in coalitions": FEDCOLLAB}


class Overview(Experiment):
    """Seed 0 of label shift from left to right."""

    name = "overview"
    title = "The method at a glance"
    place = "Figure 2, Section 4"
    time = "5 min"
    scenarios = ("label-shift",)

    def cells(self, lab: Lab) -> Iterator[Cell]:
        """What the four panels show."""
        setup = lab.setups["label-shift"]
        yield counts_cell(setup)
        yield lab.distances_cell(setup, 0)
        for row in WAYS.values():
            cell = cell_of(lab, setup, row, 0)
            if cell is not None:
                yield cell

    def output(self, lab: Lab) -> Output:
        """The picture, once all of it is there."""
        setup = lab.setups["label-shift"]
        made, found, answer = lab.get(counts_cell(setup)), lab.distances(setup, 0), lab.solve(setup, 0)
        if made is None or found is None or answer is None:
            return Output()
        models = []
        for way, row in WAYS.items():
            cell = cell_of(lab, setup, row, 0)
            result = None if cell is None else lab.get(cell)
            if result is None:
                return Output()
            models.append({"way": way, "accuracy": float(np.mean(result["accuracy"]))})
        types = made["types"]
        counts = np.bincount(answer.assignment)
        seen = np.zeros_like(counts)
        seats = []
        for client, label in enumerate(answer.assignment):
            seats.append(
                {"client": client, "coalition": int(label) + 1, "place": int(seen[label]), "type": types[client]}
            )
            seen[label] += 1
        panels = {
            "clients": [
                {"client": client, "samples": sum(labels), "type": types[client]}
                for client, labels in enumerate(made["train"])
            ],
            "distances": [
                {"i": i, "j": j, "d": float(value)} for i, row in enumerate(found.matrix) for j, value in enumerate(row)
            ],
            "coalitions": seats,
            "models": models,
        }
        return Output(charts={self.name: pictures.overview(panels)})
