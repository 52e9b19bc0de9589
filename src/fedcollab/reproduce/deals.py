"""Beyond the paper: how much of the spread over seeds is the deal of the samples, and how much the training.

Elsewhere a seed decides both. Here one deal (seed 0) is trained with several seeds: other initial weights, other
batches. The small clients of label shift have 14 samples each, and which 14 is a matter of the deal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedcollab import metrics
from fedcollab.reproduce.accuracy import FEDCOLLAB, LOCAL, MOST_SEEDS, Run, cell_of, measures, run_of, runs_of
from fedcollab.reproduce.cells import Cell
from fedcollab.reproduce.experiment import Experiment, paper
from fedcollab.reproduce.lab import Lab
from fedcollab.reproduce.output import Figure, Output, Table
from fedcollab.reproduce.setups import TITLES, Setup

DEAL = 0
MEASURES = {
    "local": "Local training, Acc",
    "acc": "FedAvg + FedCollab, Acc",
    "ipr": "FedAvg + FedCollab, IPR",
    "rsd": "FedAvg + FedCollab, RSD",
}


class Deals(Experiment):
    """Local training and FedAvg in the coalitions: new deals, and one deal trained again."""

    name = "deals"
    title = "What the seeds of Table 1 change: the deal of the samples, or the training alone"
    place = "not in it (it does not say which of the two its five runs change)"
    time = "25 min"
    scenarios = ("label-shift",)

    def cells(self, lab: Lab) -> Iterator[Cell]:
        """Every deal with its own training (table-1's cells), and one deal with all of them; two seeds at least."""
        setup = lab.setups["label-shift"]
        for seed in range(max(2, len(lab.seeds(setup)))):
            yield lab.distances_cell(setup, seed)
            for deal in dict.fromkeys((seed, DEAL)):
                yield from cells_of(lab, setup, deal, seed)

    def output(self, lab: Lab) -> Output:
        """Both spreads, and the paper's."""
        setup = lab.setups["label-shift"]
        deals = runs_of(lab, setup, FEDCOLLAB)
        again = {seed: run for seed in range(MOST_SEEDS) if (run := trained_again(lab, setup, seed)) is not None}
        if len(again) < 2:
            return Output()
        known, ours = paper()["table-1"]["label-shift"], (figures(deals), figures(again))
        published = {"local": known["local"]["acc"], **known["fedavg+fedcollab"]}
        rows: list[tuple[Any, ...]] = [
            (words, ours[0][key], ours[1][key], "{:.2f} ({:.2f})".format(*published[key]))
            for key, words in MEASURES.items()
        ]
        columns = ("", f"new deals ({len(deals)} seeds)", f"deal {DEAL} again ({len(again)} seeds)", "paper (5 runs)")
        return Output([Table(TITLES["label-shift"], columns, rows)])


def cells_of(lab: Lab, setup: Setup, deal: int, training: int) -> list[Cell]:
    """FedAvg in the coalitions and local training, on the samples of one seed, trained with another."""
    found = [cell_of(lab, setup, row, deal, training=training) for row in (FEDCOLLAB, LOCAL)]
    return [cell for cell in found if cell is not None]


def trained_again(lab: Lab, setup: Setup, training: int) -> Run | None:
    """One training of the one deal, where both of its cells are there."""
    cells = cells_of(lab, setup, DEAL, training)
    return run_of(lab, *cells) if len(cells) == 2 else None


def figures(runs: dict[int, Run]) -> dict[str, Figure]:
    """Means and standard deviations."""
    local = tuple(100 * metrics.acc(run.local) for run in runs.values())
    return {"local": Figure(local), **{key: Figure(values) for key, values in measures(runs).items()}}
