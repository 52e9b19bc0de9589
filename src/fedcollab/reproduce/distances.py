"""The figure of distance matrices: FedCollab's estimate beside what FeSEM, KMeans and FedCluster go by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedcollab.reproduce import pictures
from fedcollab.reproduce.cells import Cell
from fedcollab.reproduce.experiment import Experiment
from fedcollab.reproduce.output import Output, Row, Table
from fedcollab.reproduce.quantities import counts_cell
from fedcollab.reproduce.setups import TITLES, Setup
from fedcollab.reproduce.table_2 import NAMES
from fedcollab.reproduce.workspace import Workspace

ROUNDS = 10
OTHERS = ("fesem", "kmeans", "fedcluster")


class DistanceMatrices(Experiment):
    """Weights apart (FeSEM, KMeans), updates apart (FedCluster: 1 - S), and data apart (FedCollab)."""

    name = "distances"
    title = "Distances between clients by FedCollab, FeSEM, KMeans and FedCluster"
    place = "Figure 5, Section 5.3"
    time = "6 min (label shift 1 min)"

    def cells(self, workspace: Workspace) -> Iterator[Cell]:
        """Yield the cells of seed 0; the clustered baselines for few rounds, which is when they decide."""
        for setup in workspace.chosen(self.scenarios).values():
            yield counts_cell(setup)
            yield workspace.distances_cell(setup, 0)
            yield from (baseline_cell(workspace, setup, method) for method in OTHERS)

    def output(self, workspace: Workspace) -> Output:
        """Return the matrices side by side, and how well each tells the planted types apart."""
        tables, charts = [], {}
        for scenario, setup in workspace.chosen(self.scenarios).items():
            made, found = workspace.get(counts_cell(setup)), workspace.distances(setup, 0)
            if made is None or found is None:
                continue
            matrices: dict[str, Any] = {"FedCollab": found.matrix}
            for method in OTHERS:
                result = workspace.get(baseline_cell(workspace, setup, method))
                if result is not None and result["distances"] is not None:
                    matrices[NAMES[method]] = np.array(result["distances"])
            rows: list[Row] = [(name, *levels(matrix, np.array(made["types"]))) for name, matrix in matrices.items()]
            columns = ("method", "same type", "types 0, 1", "types 2, 3", "the others", "told apart")
            notes = (
                "Mean distance of pairs, in units of the largest. Told apart: how often a pair of one type is nearer "
                "than a pair of two types (.5 is guessing, 1 always).",
                f"FeSEM, KMeans and FedCluster after {min(ROUNDS, setup.rounds)} rounds."
                if len(matrices) > 1
                else "FeSEM, KMeans and FedCluster: not run yet.",
            )
            tables.append(Table(f"{TITLES[scenario]}, seed 0", columns, rows, notes, scenario))
            charts[f"{self.name}-{scenario}"] = pictures.matrices(matrices)
        return Output(tables, charts)


def baseline_cell(workspace: Workspace, setup: Setup, method: str) -> Cell:
    """Return the cell of a clustered baseline (`method`) of `setup` in the `workspace`, trained for few rounds."""
    return workspace.training_cell(setup, 0, method, None, rounds=min(ROUNDS, setup.rounds))


def levels(matrix: Any, types: Any) -> tuple[float, ...]:
    """Return mean distances of pairs by their types, and the chance that a pair of one type is nearer than others."""
    upper = np.triu(np.ones_like(matrix, dtype=bool), 1)
    first, second = types[:, None] * np.ones_like(types), types * np.ones_like(types)[:, None]
    low, high = np.minimum(first, second), np.maximum(first, second)
    same = upper & (low == high)
    near = [upper & (low == a) & (high == b) for a, b in ((0, 1), (2, 3))]
    rest = upper & ~same & ~near[0] & ~near[1]
    top = float(matrix[upper].max()) or 1.0
    means = [float(matrix[mask].mean()) / top for mask in (same, *near, rest)]
    own, others = matrix[same], matrix[upper & ~same]
    apart = (own[:, None] < others).mean() + (own[:, None] == others).mean() / 2
    return (*means, float(apart))
