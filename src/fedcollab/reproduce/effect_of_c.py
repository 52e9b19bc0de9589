"""The figure of the effect of C: from local training (C = 0) to one model for everyone (C to infinity)."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

import numpy as np

from fedcollab.reproduce import pictures
from fedcollab.reproduce.accuracy import MOST_SEEDS
from fedcollab.reproduce.cells import Cell
from fedcollab.reproduce.experiment import Experiment
from fedcollab.reproduce.notation import Coalitions, in_table
from fedcollab.reproduce.output import Comparison, Output, Table
from fedcollab.reproduce.setups import TITLES, Setup
from fedcollab.reproduce.workspace import Workspace

GRID = (0.0, 0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 30.0, 50.0, 100.0, inf)
COLUMNS = ("C", "Acc", "seeds", "coalitions")


class EffectOfC(Experiment):
    """FedAvg in the coalitions that the solver finds for each C."""

    name = "effect-of-c"
    title = "Effect of C: coalitions and accuracy from local to global training"
    place = "Figure 6, Section 5.4 (RQ3)"
    time = "15 min"
    scenarios = ("label-shift",)

    def cells(self, workspace: Workspace) -> Iterator[Cell]:
        """Yield one cell for each partition."""
        setup = workspace.setups["label-shift"]
        for seed in workspace.seeds(setup, main=False):
            yield workspace.distances_cell(setup, seed)
            for C in GRID:
                found = coalitions_at(workspace, setup, seed, C)
                if found is not None:
                    yield workspace.training_cell(setup, seed, "fedavg", found)

    def output(self, workspace: Workspace) -> Output:
        """Return accuracy by C, over the seeds that have every C that any seed has: means of one set of clients."""
        setup = workspace.setups["label-shift"]
        found = {C: seeds for C in GRID if (seeds := runs_at(workspace, setup, C))}
        shared = set.intersection(*map(set, found.values())) if found else set()
        if not shared:
            return Output()
        rows: list[tuple[Any, ...]] = []
        points = []
        for C, all_runs in found.items():
            runs = [all_runs[seed] for seed in sorted(shared)]
            values = [100 * accuracy for accuracy, _ in runs]
            groups = {in_table(coalitions) for _, coalitions in runs}
            first = runs[0][1]
            name = "0" if C == 0 else "infinity" if inf == C else f"{C:g}"
            rows.append((name, Comparison(tuple(values)), len(runs), "; ".join(sorted(groups))))
            size = str(len(first)) if isinstance(first, list) else first
            points.append({"C": name, "accuracy": float(np.mean(values)) / 100, "coalitions": size})
        table = Table(TITLES["label-shift"], COLUMNS, rows, setup.differences, "label-shift")
        top = max(row[1].mean for row in rows)
        best = ", ".join(row[0] for row in rows if row[1].mean >= top - 0.005)
        text = f"Accuracy is highest ({top:.2f} %) at C = {best}."
        return Output([table], {self.name: pictures.by_c(points)}, [text])


def runs_at(workspace: Workspace, setup: Setup, C: float) -> dict[int, tuple[float, Coalitions]]:
    """Return mean accuracy and coalitions of `setup` for one `C`, by seed, as far as the `workspace` has them."""
    runs = {}
    for seed in range(MOST_SEEDS):
        found = coalitions_at(workspace, setup, seed, C)
        if found is None or workspace.get(workspace.distances_cell(setup, seed)) is None:
            continue
        result = workspace.get(workspace.training_cell(setup, seed, "fedavg", found))
        if result is not None:
            runs[seed] = float(np.mean(result["accuracy"])), found
    return runs


def coalitions_at(workspace: Workspace, setup: Setup, seed: int, C: float) -> Coalitions | None:
    """Return the coalitions of `setup` and `seed` for one `C`; the two ends need no distances of the `workspace`."""
    if C in (0.0, inf):
        return "local" if C == 0 else "global"
    return workspace.coalitions(setup, seed, C)
