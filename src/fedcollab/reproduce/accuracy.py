"""Tables of accuracy, IPR and RSD: rows of methods, columns of measures, one table a scenario and number of rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fedcollab import metrics
from fedcollab.reproduce.cells import Cell
from fedcollab.reproduce.experiment import Experiment, paper
from fedcollab.reproduce.notation import Coalitions, in_table
from fedcollab.reproduce.output import Comparison, Output, Row, Table
from fedcollab.reproduce.setups import TITLES, Setup
from fedcollab.reproduce.workspace import Workspace

#: seeds that are looked for when a table is made, so that it shows all that was ever run
MOST_SEEDS = 20


@dataclass(frozen=True)
class Method:
    """One row of a table: a method, and in which coalitions it trains.

    Parameters
    ----------
    key : str
        Its key among the paper's numbers.
    label : str
        What to call it.
    method : str
        The algorithm, or the clustered baseline.
    who : str or None
        "local", "global", "fedcollab", "ignore-quantities" or "ignore-distances"; None for a clustered baseline.
    main : bool
        Whether it gets the seeds of the main rows.
    k : int, optional
        Clusters of a clustered baseline, where it is not the setup's own number.
    options : tuple of (name, value)
        Options of a clustered baseline.
    """

    key: str
    label: str
    method: str
    who: str | None
    main: bool = False
    k: int | None = None
    options: tuple[tuple[str, Any], ...] = ()


LOCAL = Method("local", "Local training", "fedavg", "local", main=True)
FEDCOLLAB = Method("fedavg+fedcollab", "FedCollab", "fedavg", "fedcollab", main=True)


class AccuracyTable(Experiment):
    """A table of methods; a subclass lists its rows."""

    rows: ClassVar[tuple[Method, ...]]
    shows_coalitions: ClassVar[bool] = False

    def cells(self, workspace: Workspace) -> Iterator[Cell]:
        """Yield the cells seed by seed, main rows first."""
        for setup in workspace.chosen(self.scenarios).values():
            for seed in range(max(*workspace.seeds(setup), *workspace.seeds(setup, main=False)) + 1):
                for row in self._wanted(workspace, setup):
                    if row is not LOCAL and seed not in workspace.seeds(setup, main=row.main):
                        continue
                    if row.who not in (None, "local", "global"):
                        yield workspace.distances_cell(setup, seed)
                    cell = cell_of(workspace, setup, row, seed)
                    if cell is not None:
                        yield cell

    def output(self, workspace: Workspace) -> Output:
        """Return one table for each scenario and number of rounds that have cells."""
        tables = []
        columns = ("method", "Acc", "IPR", "RSD", "seeds", *["coalitions"] * self.shows_coalitions)
        for scenario, full in workspace.chosen(self.scenarios).items():
            published = paper().get(self.name, {}).get(scenario, {})
            for setup in full.lengths:
                rows = [
                    self._row(row, runs, published.get(row.key, {}))
                    for row in self._wanted(workspace, setup)
                    if row in self.rows and (runs := runs_of(workspace, setup, row))
                ]
                if rows:
                    title = f"{TITLES[scenario]}, {setup.rounds} rounds"
                    key = scenario if setup is full else f"{scenario}-{setup.rounds}"
                    tables.append(Table(title, columns, rows, setup.differences, key))
        return Output(tables)

    def _wanted(self, workspace: Workspace, setup: Setup) -> list[Method]:
        """Return local training and the rows to run."""
        return [LOCAL, *(row for row in self.rows if row is not LOCAL and workspace.wants(setup, row.method))]

    def _row(self, row: Method, runs: dict[int, Run], published: dict[str, list[float]]) -> Row:
        """Return the entries of a `row`: the measures of its `runs` beside those `published`."""
        entries = [
            None
            if row is LOCAL and measure != "acc"
            else Comparison(values, (published[measure][0], published[measure][1]) if measure in published else None)
            for measure, values in measures(runs).items()
        ]
        return (row.label, *entries, len(runs), *[coalitions_found(runs)] * self.shows_coalitions)


@dataclass(frozen=True, eq=False)
class Run:
    """One seed of a row: each client's accuracy by the method and by local training, and who trained with whom."""

    accuracy: Any
    local: Any
    coalitions: list[list[str]]


def cell_of(
    workspace: Workspace, setup: Setup, row: Method, seed: int, *, training_seed: int | None = None
) -> Cell | None:
    """Return the cell of a row.

    Parameters
    ----------
    workspace : Workspace
        Where the distances are.
    setup : Setup
        The scenario.
    row : Method
        The row.
    seed : int
        The seed of the samples and of the training.
    training_seed : int, optional
        Another seed for the training alone.

    Returns
    -------
    Cell or None
        None if its coalitions are not known yet.
    """
    coalitions: Coalitions | None = row.who
    if row.who not in (None, "local", "global"):
        ignore = str(row.who).removeprefix("fedcollab").removeprefix("ignore-")
        coalitions = workspace.coalitions(setup, seed, ignore=ignore)
        if coalitions is None:
            return None
    setup = setup if row.k is None else replace(setup, k=row.k)
    options = {key: min(value, setup.rounds) if key == "local_rounds" else value for key, value in row.options}
    return workspace.training_cell(setup, seed, row.method, coalitions, options=options, training_seed=training_seed)


def runs_of(workspace: Workspace, setup: Setup, row: Method) -> dict[int, Run]:
    """Return the runs of a `row` of `setup` that the `workspace` has, by seed, each with its local reference."""
    runs = {}
    for seed in range(MOST_SEEDS):
        run = run_of(workspace, *(cell_of(workspace, setup, which, seed) for which in (row, LOCAL)))
        if run is not None:
            runs[seed] = run
    return runs


def run_of(workspace: Workspace, cell: Cell | None, reference: Cell | None) -> Run | None:
    """Return the run of a `cell` with its local `reference`, or None if the `workspace` lacks one of them."""
    result, local = workspace.get(cell), workspace.get(reference)
    if result is None or local is None:
        return None
    return Run(np.array(result["accuracy"]), np.array(local["accuracy"]), result["coalitions"])


def measures(runs: dict[int, Run]) -> dict[str, tuple[float, ...]]:
    """Return Acc, IPR and RSD of every seed, in percent."""
    both = [(run.accuracy, run.local) for run in runs.values()]
    return {
        "acc": tuple(100 * metrics.acc(accuracy) for accuracy, _ in both),
        "ipr": tuple(100 * metrics.ipr(accuracy, local) for accuracy, local in both),
        "rsd": tuple(100 * metrics.rsd(accuracy, local) for accuracy, local in both),
    }


def coalitions_found(runs: dict[int, Run]) -> str:
    """Return the coalitions of the runs as text, each with its seeds where they differ."""
    found: dict[str, list[int]] = {}
    for seed, run in runs.items():
        found.setdefault(in_table(run.coalitions), []).append(seed)
    if len(found) == 1:
        return next(iter(found))
    return "; ".join(f"{text} (seed {', '.join(map(str, seeds))})" for text, seeds in found.items())
