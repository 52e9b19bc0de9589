"""Convergence of the solver: Algorithm 2 to the letter, 100 times, with the loss after every inner iteration.

An inner iteration visits one client, evaluates the objective for each of the N coalitions that it could be in, and
takes the best; the run stops after a whole pass without a change. (`solve` takes the same steps in lockstep and prices
all choices at once, which is why it is some 300 times faster; this is for the figure.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fedcollab.coalitions import Collaboration, objective
from fedcollab.reproduce import pictures
from fedcollab.reproduce.cells import Cell, Result, Scratch
from fedcollab.reproduce.compute import rounded
from fedcollab.reproduce.experiment import Experiment, paper
from fedcollab.reproduce.notation import in_table, shorthand
from fedcollab.reproduce.output import Output, Row, Table
from fedcollab.reproduce.setups import TITLES, Setup
from fedcollab.reproduce.workspace import Workspace
from fedcollab.seeds import generator

RUNS = 100
#: the scenario that the paper's figure is of
PAPER = "feature-shift"
COLUMNS = ("scenario", "last change at most", "paper", "stopped at most", "paper ", "runs in the best", "ends (runs)")
NOTE = (
    "The best partition is the one that `solve` finds and proves: where the steps of Algorithm 2 end, it also joins "
    "whole coalitions and swaps clients."
)


class Convergence(Experiment):
    """100 runs from all-local, each with its own order of clients."""

    name = "convergence"
    title = "Convergence of Algorithm 2 over 100 runs"
    place = "Figure 8, Appendix B.3 (RQ6)"
    time = "2 min"

    def cells(self, workspace: Workspace) -> Iterator[Cell]:
        """Yield the cells of seed 0 of each scenario."""
        for setup in workspace.chosen(self.scenarios).values():
            yield workspace.distances_cell(setup, 0)
            cell = descents_cell(workspace, setup)
            if cell is not None:
                yield cell

    def output(self, workspace: Workspace) -> Output:
        """Return the losses, the histogram, and where the runs end."""
        rows: list[Row] = []
        charts, known = {}, paper()["convergence"]
        for scenario, setup in workspace.chosen(self.scenarios).items():
            found, answer = workspace.get(descents_cell(workspace, setup)), workspace.solve(setup, 0)
            if found is None or answer is None:
                continue
            ends = "; ".join(f"{text} ({count})" for text, count in list(found["ends"].items())[:3])
            of_paper = [known[key] if scenario == PAPER else None for key in ("converged", "stopped")]
            rows.append((TITLES[scenario], max(found["converged"]), of_paper[0], max(found["stopped"]),
                         of_paper[1], in_the_best(found, answer), ends))  # fmt: skip
            charts[f"{self.name}-{scenario}"] = pictures.descents(found["losses"], found["converged"], answer.objective)
        return Output([Table("Inner iterations of 100 runs", COLUMNS, rows, (NOTE,))] if rows else [], charts)


def descents_cell(workspace: Workspace, setup: Setup) -> Cell | None:
    """Return the cell of the runs on one matrix, or None if the matrix is not there."""
    found = workspace.distances(setup, 0)
    if found is None:
        return None
    runs = RUNS if workspace.choices.size != "tiny" else 5
    settings = {"matrix": rounded(found.matrix), "quantities": found.quantities, "names": list(found.names)}
    return Cell("descents", setup.file("descents", 0), {**settings, "C": setup.C, "runs": runs, "seed": 0})


def in_the_best(found: Result, answer: Collaboration) -> int:
    """Return how many runs end with the solver's objective (a cell's distances and losses are rounded)."""
    return sum(path[-1] <= answer.objective + 1e-3 for path in found["losses"])


def compute(settings: Mapping[str, Any], scratch: Scratch) -> Result:
    """Return the losses after every inner iteration, when each run converged and stopped, and where the runs end."""
    matrix, quantities = np.array(settings["matrix"]), np.array(settings["quantities"], dtype=np.float64)
    losses, converged, stopped = [], [], []
    ends: Counter[str] = Counter()
    for run in range(settings["runs"]):
        rng = generator(settings["seed"], "reproduce", "descents", run)
        path, labels = descend(matrix, quantities, settings["C"], rng)
        losses.append(rounded(path, 4))
        stopped.append(len(path) - 1)
        converged.append(int(np.flatnonzero(np.diff(path))[-1]) + 1 if len(set(path)) > 1 else 0)
        groups = [[settings["names"][i] for i in np.flatnonzero(labels == k)] for k in dict.fromkeys(labels.tolist())]
        ends[in_table(shorthand(groups))] += 1
    return {"losses": losses, "converged": converged, "stopped": stopped, "ends": dict(ends.most_common())}


def descend(matrix: Any, quantities: Any, C: float, rng: np.random.Generator) -> tuple[list[float], Any]:
    """Run Algorithm 2 once, from all-local.

    Parameters
    ----------
    matrix : array of shape (N, N)
        The distances.
    quantities : array of shape (N,)
        The samples of each client.
    C : float
        The weight of the generalisation term.
    rng : Generator
        Decides the order in which clients are visited.

    Returns
    -------
    losses : list of float
        The objective at the start and after each inner iteration.
    labels : array of int
        The coalition of each client.
    """
    count = len(quantities)
    labels = np.arange(count)
    path = [objective(matrix, quantities, labels, C)]
    changed = True
    while changed:
        changed = False
        for client in rng.permutation(count):
            before = labels[client]
            values = np.empty(count)
            for choice in range(count):
                labels[client] = choice
                values[choice] = objective(matrix, quantities, labels, C)
            best = int(values.argmin())
            if values[best] >= values[before] - 1e-12:
                best = int(before)
            labels[client] = best
            changed |= best != before
            path.append(float(values[best]))
    return path, labels
