"""Beyond the paper: how much of the spread over seeds comes from the samples, and how much from the training.

Elsewhere a seed decides both. Here the samples of seed 0 are trained with several seeds: other initial weights, other
batches. The small clients of label shift have 14 samples each, and which 14 depends on the seed.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedcollab import metrics
from fedcollab.reproduce.accuracy import FEDCOLLAB, LOCAL, MOST_SEEDS, Run, cell_of, measures, run_of, runs_of
from fedcollab.reproduce.cells import Cell
from fedcollab.reproduce.experiment import Experiment, paper
from fedcollab.reproduce.output import Comparison, Output, Row, Table
from fedcollab.reproduce.setups import TITLES, Setup
from fedcollab.reproduce.workspace import Workspace

SAMPLES = 0
MEASURES = {
    "local": "Local training, Acc",
    "acc": "FedAvg + FedCollab, Acc",
    "ipr": "FedAvg + FedCollab, IPR",
    "rsd": "FedAvg + FedCollab, RSD",
}


class SeedSpread(Experiment):
    """Local training and FedAvg in the coalitions: new samples with every seed, and the same samples trained again."""

    name = "seed-spread"
    title = "What the seeds of Table 1 change: the samples of the clients, or the training alone"
    place = "not in it (it does not say which of the two its five runs change)"
    time = "25 min"
    scenarios = ("label-shift",)

    def cells(self, workspace: Workspace) -> Iterator[Cell]:
        """Yield table-1's cells, and those of the samples of one seed with every training; two seeds at least."""
        setup = workspace.setups["label-shift"]
        for seed in range(max(2, len(workspace.seeds(setup)))):
            yield workspace.distances_cell(setup, seed)
            for samples in dict.fromkeys((seed, SAMPLES)):
                yield from cells_of(workspace, setup, samples, seed)

    def output(self, workspace: Workspace) -> Output:
        """Return both spreads, and the paper's."""
        setup = workspace.setups["label-shift"]
        new = runs_of(workspace, setup, FEDCOLLAB)
        again = {seed: run for seed in range(MOST_SEEDS) if (run := trained_again(workspace, setup, seed)) is not None}
        if len(again) < 2:
            return Output()
        known, ours = paper()["table-1"]["label-shift"], (compared(new), compared(again))
        published = {"local": known["local"]["acc"], **known["fedavg+fedcollab"]}
        rows: list[Row] = [
            (words, ours[0][key], ours[1][key], "{:.2f} ({:.2f})".format(*published[key]))
            for key, words in MEASURES.items()
        ]
        columns = (
            "",
            f"new samples ({len(new)} seeds)",
            f"samples of seed {SAMPLES}, trained again ({len(again)} seeds)",
            "paper (5 runs)",
        )
        return Output([Table(TITLES["label-shift"], columns, rows)])


def cells_of(workspace: Workspace, setup: Setup, samples: int, training_seed: int) -> list[Cell]:
    """Return the cells of FedAvg in the coalitions and of local training, where they can be named.

    Parameters
    ----------
    workspace : Workspace
        Where the distances are.
    setup : Setup
        The scenario.
    samples : int
        The seed that decides the clients' samples.
    training_seed : int
        The seed of the training.
    """
    found = [cell_of(workspace, setup, row, samples, training_seed=training_seed) for row in (FEDCOLLAB, LOCAL)]
    return [cell for cell in found if cell is not None]


def trained_again(workspace: Workspace, setup: Setup, training_seed: int) -> Run | None:
    """Return one training (`training_seed`) of the samples of seed 0, if the `workspace` has both cells of `setup`."""
    cells = cells_of(workspace, setup, SAMPLES, training_seed)
    return run_of(workspace, *cells) if len(cells) == 2 else None


def compared(runs: dict[int, Run]) -> dict[str, Comparison]:
    """Return means and standard deviations over seeds, by measure."""
    local = tuple(100 * metrics.acc(run.local) for run in runs.values())
    return {"local": Comparison(local), **{key: Comparison(values) for key, values in measures(runs).items()}}
