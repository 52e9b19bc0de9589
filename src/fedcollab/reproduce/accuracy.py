"""Tables of accuracy, IPR and RSD: rows of methods, columns of measures, one table a scenario."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fedcollab import metrics
from fedcollab.reproduce.cells import Cell
from fedcollab.reproduce.experiment import Experiment, paper
from fedcollab.reproduce.lab import Lab, spoken
from fedcollab.reproduce.output import Figure, Output, Table
from fedcollab.reproduce.setups import TITLES, Setup

#: seeds that are looked for when a table is made, so that it shows all that was ever run
MOST_SEEDS = 20


@dataclass(frozen=True)
class Row:
    """One row: the paper's key, what to call it, the method, and in which coalitions it trains.

    who       "local", "global", "fedcollab", "ignore-quantities", "ignore-distances"; None for a clustered baseline
    main      whether it gets the seeds of the main rows
    k         clusters of a clustered baseline, where it is not the setup's own number
    options   of a clustered baseline
    """

    key: str
    label: str
    method: str
    who: str | None
    main: bool = False
    k: int | None = None
    options: tuple[tuple[str, Any], ...] = ()


LOCAL = Row("local", "Local training", "fedavg", "local", main=True)
FEDCOLLAB = Row("fedavg+fedcollab", "FedCollab", "fedavg", "fedcollab", main=True)


class AccuracyTable(Experiment):
    """A table of methods; a subclass lists its rows."""

    rows: ClassVar[tuple[Row, ...]]
    shows_coalitions: ClassVar[bool] = False

    def cells(self, lab: Lab) -> Iterator[Cell]:
        """Main rows first, seed by seed."""
        for scenario in lab.scenarios(self.scenarios):
            setup = lab.setups[scenario]
            for seed in range(max(*lab.seeds(setup), *lab.seeds(setup, main=False)) + 1):
                for row in self._wanted(lab, setup):
                    if row is not LOCAL and seed not in lab.seeds(setup, main=row.main):
                        continue
                    if row.who not in (None, "local", "global"):
                        yield lab.distances_cell(setup, seed)
                    cell = cell_of(lab, setup, row, seed)
                    if cell is not None:
                        yield cell

    def output(self, lab: Lab) -> Output:
        """One table a scenario that has cells."""
        tables = []
        for scenario in lab.scenarios(self.scenarios):
            setup = lab.setups[scenario]
            rows: list[tuple[Any, ...]] = []
            for row in self._wanted(lab, setup):
                if row not in self.rows:
                    continue
                runs = runs_of(lab, setup, row)
                if runs:
                    rows.append(self._row(row, runs, paper().get(self.name, {}).get(scenario, {}).get(row.key, {})))
            if rows:
                columns = ("method", "Acc", "IPR", "RSD", "seeds", *["coalitions"] * self.shows_coalitions)
                title = f"{TITLES[scenario]}, {setup.rounds} rounds"
                tables.append(Table(title, columns, rows, setup.differences, scenario))
        return Output(tables)

    def _wanted(self, lab: Lab, setup: Setup) -> list[Row]:
        return [LOCAL, *(row for row in self.rows if row is not LOCAL and lab.wants(setup, row.method))]

    def _row(self, row: Row, runs: dict[int, Run], published: dict[str, list[float]]) -> tuple[Any, ...]:
        entries = [
            None if row is LOCAL and measure != "acc" else Figure(values, _pair(published.get(measure)))
            for measure, values in measures(runs).items()
        ]
        extra = [said_coalitions(runs)] if self.shows_coalitions else []
        return (row.label, *entries, len(runs), *extra)


@dataclass(frozen=True, eq=False)
class Run:
    """One seed of a row: each client's accuracy, alone and by the method, and who trained with whom."""

    accuracy: Any
    local: Any
    coalitions: list[list[str]]


def cell_of(lab: Lab, setup: Setup, row: Row, seed: int, *, training: int | None = None) -> Cell | None:
    """The cell of a row, if its coalitions are known yet; `training` where the training has a seed of its own."""
    who = row.who
    if who not in (None, "local", "global"):
        ignore = "" if who == "fedcollab" else str(who).removeprefix("ignore-")
        found = lab.coalitions(setup, seed, ignore=ignore)
        return None if found is None else lab.training_cell(setup, seed, row.method, found, training=training)
    setup = setup if row.k is None else replace(setup, k=row.k)
    options = {key: min(value, setup.rounds) if key == "local_rounds" else value for key, value in row.options}
    return lab.training_cell(setup, seed, row.method, who, options=options, training=training)


def runs_of(lab: Lab, setup: Setup, row: Row) -> dict[int, Run]:
    """All seeds of a row that are there, each with its local reference."""
    runs = {}
    for seed in range(MOST_SEEDS):
        cell, reference = cell_of(lab, setup, row, seed), cell_of(lab, setup, LOCAL, seed)
        run = None if cell is None or reference is None else run_of(lab, cell, reference)
        if run is not None:
            runs[seed] = run
    return runs


def run_of(lab: Lab, cell: Cell, reference: Cell) -> Run | None:
    """A cell beside its local reference, if both are there."""
    result, local = lab.get(cell), lab.get(reference)
    if result is None or local is None:
        return None
    return Run(np.array(result["accuracy"]), np.array(local["accuracy"]), result["coalitions"])


def measures(runs: dict[int, Run]) -> dict[str, tuple[float, ...]]:
    """Acc, IPR and RSD of every seed, in percent."""
    both = [(run.accuracy, run.local) for run in runs.values()]
    return {
        "acc": tuple(100 * metrics.acc(accuracy) for accuracy, _ in both),
        "ipr": tuple(100 * metrics.ipr(accuracy, local) for accuracy, local in both),
        "rsd": tuple(100 * metrics.rsd(accuracy, local) for accuracy, local in both),
    }


def _pair(values: list[float] | None) -> tuple[float, float] | None:
    return None if values is None else (values[0], values[1])


def said_coalitions(runs: dict[int, Run]) -> str:
    """The coalitions found, each with its seeds where they differ."""
    found: dict[str, list[int]] = {}
    for seed, run in runs.items():
        found.setdefault(spoken(run.coalitions).replace(".", ", "), []).append(seed)
    if len(found) == 1:
        return next(iter(found))
    return "; ".join(f"{text} (seed {', '.join(map(str, seeds))})" for text, seeds in found.items())
