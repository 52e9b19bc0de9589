"""The picture of the method: clients, distances, coalitions, models; drawn from a real run of label shift."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedcollab.reproduce import pictures
from fedcollab.reproduce.accuracy import FEDCOLLAB, LOCAL, cell_of
from fedcollab.reproduce.cells import Cell
from fedcollab.reproduce.experiment import Experiment
from fedcollab.reproduce.output import Output
from fedcollab.reproduce.quantities import counts_cell
from fedcollab.reproduce.table_1 import Table1
from fedcollab.reproduce.workspace import Workspace

WAYS = {"alone": LOCAL, "everyone together": Table1.rows[1], "in coalitions": FEDCOLLAB}


class Overview(Experiment):
    """Seed 0 of label shift from left to right."""

    name = "overview"
    title = "The method at a glance"
    place = "Figure 2, Section 4"
    time = "5 min"
    scenarios = ("label-shift",)

    def cells(self, workspace: Workspace) -> Iterator[Cell]:
        """Yield the cells of the four panels."""
        setup = workspace.setups["label-shift"]
        yield counts_cell(setup)
        yield workspace.distances_cell(setup, 0)
        yield from filter(None, (cell_of(workspace, setup, row, 0) for row in WAYS.values()))

    def output(self, workspace: Workspace) -> Output:
        """Return the picture, once all of it is there."""
        setup = workspace.setups["label-shift"]
        made, found = workspace.get(counts_cell(setup)), workspace.distances(setup, 0)
        answer = workspace.solve(setup, 0)
        trained = {way: workspace.get(cell_of(workspace, setup, row, 0)) for way, row in WAYS.items()}
        models = [
            {"way": way, "accuracy": float(np.mean(result["accuracy"]))}
            for way, result in trained.items()
            if result is not None
        ]
        if made is None or found is None or answer is None or len(models) < len(WAYS):
            return Output()
        types = made["types"]
        seen = np.zeros(answer.assignment.max() + 1, dtype=int)
        places = []
        for client, label in enumerate(answer.assignment):
            places.append(
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
            "coalitions": places,
            "models": models,
        }
        return Output(charts={self.name: pictures.overview(panels)})
