"""The figure of new clients: 19 clients train, client 0 comes late, and one coalition trains on with it.

Beside the paper's two questions (does the newcomer beat its own model, does its coalition gain?) a third: does the
coalition gain by the newcomer, or only by more rounds? So the same coalition also trains on without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcollab.reproduce import pictures
from fedcollab.reproduce.accuracy import MOST_SEEDS
from fedcollab.reproduce.cells import Cell, Desk, Result
from fedcollab.reproduce.compute import clients, connect, rounded
from fedcollab.reproduce.experiment import Experiment
from fedcollab.reproduce.lab import Lab, said, spoken
from fedcollab.reproduce.output import Figure, Output, Table
from fedcollab.reproduce.setups import TITLES, Setup

if TYPE_CHECKING:
    from fedcollab.training import TrainingResult

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

    def cells(self, lab: Lab) -> Iterator[Cell]:
        """One cell a seed does it all."""
        for scenario in lab.scenarios(self.scenarios):
            setup = lab.setups[scenario]
            for seed in lab.seeds(setup, main=False):
                yield joining_cell(setup, seed)

    def output(self, lab: Lab) -> Output:
        """Accuracies before and after, and the curves of seed 0."""
        tables, charts = [], {}
        for scenario in lab.scenarios(self.scenarios):
            setup = lab.setups[scenario]
            found = {seed: lab.get(joining_cell(setup, seed)) for seed in range(MOST_SEEDS)}
            runs = {seed: result for seed, result in found.items() if result is not None}
            if not runs:
                continue
            rows: list[tuple[Any, ...]] = [
                (words, Figure(tuple(100 * run["accuracy"][key] for run in runs.values())), len(runs))
                for key, words in COLUMNS.items()
                if all(run["accuracy"][key] is not None for run in runs.values())
            ]
            places = {spoken(said(run["coalitions"])).replace(".", ", ") for run in runs.values()}
            fewer = f" (the paper: {COMES})" if setup.late[0] != COMES else ""
            notes = (
                f"{setup.late[0]} rounds{fewer}, then {setup.late[1]} more after it joined. Coalitions with it: "
                f"{'; '.join(sorted(places))}. {runs[min(runs)]['pairs']} pairs were estimated for it.",
            )
            tables.append(Table(TITLES[scenario], ("", "Acc", "seeds"), rows, notes, scenario))
            charts[f"{self.name}-{scenario}"] = pictures.joining(runs[min(runs)]["curves"], setup.late[0])
        return Output(tables, charts)


def joining_cell(setup: Setup, seed: int) -> Cell:
    """Everything from 19 clients to the newcomer's place."""
    before, after = setup.late
    settings = {**setup.data(seed), **setup.training(before), "features": setup.features, "encoder": setup.encoder}
    settings |= {"distance_options": setup.distance_options, "C": setup.C, "late_rounds": after, "newcomer": 0}
    return Cell("joining", setup.file(f"joining_r{before}+{after}", seed), settings)


def compute(settings: Mapping[str, Any], desk: Desk) -> Result:
    """Train without the newcomer, let it join, train on; and the same without it."""
    from fedcollab.coalitions import solve
    from fedcollab.distances import estimate_distances
    from fedcollab.federation.adopt import with_client
    from fedcollab.runs.membership import State, Training, join
    from fedcollab.runs.membership.retrain import retrain
    from fedcollab.training import TrainingResult, train

    seed, after = settings["seed"], settings["late_rounds"]
    everyone = clients(settings, settings["features"])
    newcomer = everyone.pop(settings["newcomer"])
    encoder = None if settings["features"] else settings["encoder"]
    old = connect(everyone, seed, encoder)
    keys = ("model", "model_options", "rounds", "lr", "batch_size", "local_epochs", "seed")
    common: dict[str, Any] = {key: settings[key] for key in keys}
    common["evaluate_every"] = max(1, after // 5)
    distances = estimate_distances(old, seed=seed, **settings["distance_options"])
    collaboration = solve(distances, C=settings["C"])
    if (desk.folder / "training.json").exists():  # an earlier command came that far
        trained = TrainingResult.load(desk.folder)
    else:
        trained = train(old, collaboration, **common, run_dir=desk.folder, progress=desk.note)
    larger = with_client(old, newcomer)
    state = State(distances, collaboration, {"coalitions": trained})
    joined = join(state, larger, newcomer.name, training=Training(rounds=after))
    assert joined.training is not None
    coalition = next(members for members in joined.collaboration.coalitions if newcomer.name in members)
    others = [name for name in coalition if name != newcomer.name]
    own = retrain(larger, trained, [newcomer.name], scratch=True, rounds=common["rounds"] + after)
    apart = retrain(old, trained, others, rounds=after) if others else None
    first = common["rounds"]
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


def mean(result: TrainingResult, names: Sequence[str]) -> float | None:
    """Mean accuracy of some clients."""
    values = [result.reported[result.names.index(name)] for name in names]
    return round(float(np.mean(values)), 5) if values else None


def curve(result: TrainingResult, names: Sequence[str], first: int = 0) -> list[list[float]]:
    """Mean accuracy of some clients by round, counted from `first`."""
    rows = [row for row in result.history if row["client"] in names and row.get("accuracy") is not None]
    rounds = sorted({row["round"] for row in rows})
    return [[first + at, rounded(np.mean([row["accuracy"] for row in rows if row["round"] == at]))] for at in rounds]
