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
from fedcollab.reproduce.lab import Coalitions, Lab, spoken
from fedcollab.reproduce.output import Figure, Output, Table
from fedcollab.reproduce.setups import TITLES, Setup

GRID = (0.0, 0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 30.0, 50.0, 100.0, inf)


class EffectOfC(Experiment):
    """FedAvg in the coalitions that the solver finds for each C."""

    name = "effect-of-c"
    title = "Effect of C: coalitions and accuracy from local to global training"
    place = "Figure 6, Section 5.4 (RQ3)"
    time = "15 min"
    scenarios = ("label-shift",)

    def cells(self, lab: Lab) -> Iterator[Cell]:
        """Equal partitions are one cell."""
        setup = lab.setups["label-shift"]
        for seed in lab.seeds(setup, main=False):
            yield lab.distances_cell(setup, seed)
            for C in GRID:
                found = at(lab, setup, seed, C)
                if found is not None:
                    yield lab.training_cell(setup, seed, "fedavg", found)

    def output(self, lab: Lab) -> Output:
        """Accuracy by C, over the seeds that have every C that any seed has: means of one kind of clients."""
        setup = lab.setups["label-shift"]
        found = {C: seeds for C in GRID if (seeds := runs_at(lab, setup, C))}
        shared = set.intersection(*map(set, found.values())) if found else set()
        if not shared:
            return Output()
        rows: list[tuple[Any, ...]] = []
        drawn = []
        for C, all_runs in found.items():
            runs = [all_runs[seed] for seed in sorted(shared)]
            values = [100 * accuracy for accuracy, _ in runs]
            groups = {spoken(coalitions).replace(".", ", ") for _, coalitions in runs}
            first = runs[0][1]
            name = "0" if C == 0 else "infinity" if inf == C else f"{C:g}"
            rows.append((name, Figure(tuple(values)), len(runs), "; ".join(sorted(groups))))
            size = str(len(first)) if isinstance(first, list) else first
            drawn.append({"C": name, "accuracy": float(np.mean(values)) / 100, "coalitions": size})
        table = Table(
            TITLES["label-shift"], ("C", "Acc", "seeds", "coalitions"), rows, setup.differences, "label-shift"
        )
        return Output([table], {self.name: pictures.by_c(drawn)}, [said(rows)])


def runs_at(lab: Lab, setup: Setup, C: float) -> dict[int, tuple[float, Coalitions]]:
    """Mean accuracy and coalitions for one C, by seed."""
    runs = {}
    for seed in range(MOST_SEEDS):
        found = at(lab, setup, seed, C)
        if found is None or lab.get(lab.distances_cell(setup, seed)) is None:
            continue
        result = lab.get(lab.training_cell(setup, seed, "fedavg", found))
        if result is not None:
            runs[seed] = float(np.mean(result["accuracy"])), found
    return runs


def at(lab: Lab, setup: Setup, seed: int, C: float) -> Coalitions | None:
    """The coalitions for one C; the two ends need no distances."""
    if C in (0.0, inf):
        return "local" if C == 0 else "global"
    return lab.coalitions(setup, seed, C)


def said(rows: list[tuple[Any, ...]]) -> str:
    """Where accuracy is highest."""
    top = max(row[1].mean for row in rows)
    best = [row[0] for row in rows if row[1].mean >= top - 0.005]
    return f"Accuracy is highest ({top:.2f} %) at C = {', '.join(best)}."
