"""The figure of new clients: 19 clients train, client 0 comes late, and one coalition trains on with it.

Beside the paper's two questions (does the newcomer beat its own model, does its coalition gain?) a third: does the
coalition gain by the newcomer, or only by more rounds? So the same coalition also trains on without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import fedcollab
from fedcollab import training
from fedcollab.reproduce import pictures
from fedcollab.reproduce.accuracy import MOST_SEEDS
from fedcollab.reproduce.cells import Cell, Result, Scratch
from fedcollab.reproduce.compute import make_scenario, rounded, training_settings
from fedcollab.reproduce.experiment import Experiment
from fedcollab.reproduce.notation import in_table, shorthand
from fedcollab.reproduce.output import Comparison, Output, Row, Table
from fedcollab.reproduce.setups import TITLES, Setup
from fedcollab.reproduce.workspace import Workspace

#: the round after which the paper's newcomer comes
COMES = 200
COLUMNS = {
    "alone": "newcomer alone",
    "newcomer": "newcomer in its coalition",
    "before": "its coalition before",
    "after": "its coalition with it",
    "without": "as many rounds without it",
}


class NewClient(Experiment):
    """Client 0 joins after the others have trained."""

    name = "new-client"
    title = "A new client joins: what it gains, and what its coalition gains"
    place = "Figure 7, Appendix B.2 (RQ5)"
    time = "25 min (label shift 5 min)"
    scenarios = ("label-shift", "feature-shift")

    def cells(self, workspace: Workspace) -> Iterator[Cell]:
        """Yield one cell for each seed, which does it all."""
        for setup in workspace.chosen(self.scenarios).values():
            for seed in workspace.seeds(setup, main=False):
                yield joining_cell(setup, seed)

    def output(self, workspace: Workspace) -> Output:
        """Return accuracies before and after, and the curves of the first seed."""
        tables, charts = [], {}
        for scenario, setup in workspace.chosen(self.scenarios).items():
            found = {seed: workspace.get(joining_cell(setup, seed)) for seed in range(MOST_SEEDS)}
            runs = {seed: result for seed, result in found.items() if result is not None}
            if not runs:
                continue
            rows: list[Row] = [
                (words, Comparison(tuple(100 * run["accuracy"][key] for run in runs.values())), len(runs))
                for key, words in COLUMNS.items()
                if all(run["accuracy"][key] is not None for run in runs.values())
            ]
            places = {in_table(shorthand(run["coalitions"])) for run in runs.values()}
            fewer = f" (the paper: {COMES})" if setup.late[0] != COMES else ""
            notes = (
                f"{setup.late[0]} rounds{fewer}, then {setup.late[1]} more after it joined. Coalitions with it: "
                f"{'; '.join(sorted(places))}. {runs[min(runs)]['pairs']} pairs were estimated for it.",
            )
            tables.append(Table(TITLES[scenario], ("", "Acc", "seeds"), rows, notes, scenario))
            charts[f"{self.name}-{scenario}"] = pictures.joining(runs[min(runs)]["curves"], setup.late[0])
        return Output(tables, charts)


def joining_cell(setup: Setup, seed: int) -> Cell:
    """Return the cell of one seed: 19 clients train, the newcomer comes, and its coalition trains on."""
    before, after = setup.late
    settings = {**setup.data(seed), **setup.training(before), "features": setup.features, "encoder": setup.encoder}
    settings |= {"distance_options": setup.distance_options, "C": setup.C, "late_rounds": after, "newcomer": 0}
    return Cell("joining", setup.file(f"joining_r{before}+{after}", seed), settings)


def compute(settings: Mapping[str, Any], scratch: Scratch) -> Result:
    """Train without the newcomer, let it join, train on; and the same without it."""
    made, after, first = make_scenario(settings, settings["features"]), settings["late_rounds"], settings["rounds"]
    old = list(made.clients)
    newcomer = old.pop(settings["newcomer"])
    fitted = fedcollab.FedCollab(
        C=settings["C"],
        seed=settings["seed"],
        scale=made.scale,
        encoder=None if settings["features"] else settings["encoder"],
        distance_options=settings["distance_options"],
    ).fit(old)
    if (scratch.folder / "training.json").exists():  # an earlier command came that far
        trained = training.TrainingResult.load(scratch.folder)
    else:
        trained = training.train(
            old,
            fitted.collaboration,
            **training_settings(settings),
            scale=made.scale,
            evaluate_every=max(1, after // 5),
            stopping="none",
            run_dir=scratch.folder,
            progress=scratch.progress,
        )
    joined = fitted.join(newcomer, trained=trained, rounds=after)
    assert joined.training is not None
    coalition = next(members for members in joined.collaboration.coalitions if newcomer.name in members)
    others = [name for name in coalition if name != newcomer.name]
    own = training.retrain(made.clients, trained, [newcomer.name], scratch=True, rounds=first + after)
    apart = training.retrain(old, trained, others, rounds=after) if others else None
    return {
        "coalitions": joined.collaboration.coalitions,
        "pairs": joined.pairs,
        "accuracy": {
            "alone": mean(own, [newcomer.name]),
            "newcomer": mean(joined.training, [newcomer.name]),
            "before": mean(trained, others),
            "after": mean(joined.training, others),
            "without": None if apart is None else mean(apart, others),
        },
        "curves": {
            "newcomer alone": curve(own, [newcomer.name]),
            "newcomer in its coalition": curve(joined.training, [newcomer.name]),
            "its coalition": curve(joined.training, others),
            "its coalition without it": [] if apart is None else curve(apart, others, first),
        },
    }


def mean(result: training.TrainingResult, names: Sequence[str]) -> float | None:
    """Return the mean accuracy of some clients, or None for no client."""
    values = [result.reported[result.names.index(name)] for name in names]
    return round(float(np.mean(values)), 5) if values else None


def curve(result: training.TrainingResult, names: Sequence[str], first: int = 0) -> list[list[float]]:
    """Return the mean accuracy in `result` of the clients with these `names` by round, counted from `first`."""
    rows = [row for row in result.history if row["client"] in names and row.get("accuracy") is not None]
    rounds = sorted({row["round"] for row in rows})
    return [[first + at, rounded(np.mean([row["accuracy"] for row in rows if row["round"] == at]))] for at in rounds]
