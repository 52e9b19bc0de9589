"""Figure 1: two clients. Does the global or the local model do better, as their distance and their quantity grow?

The paper gives no parameters. Chosen is concept shift: only there does more data make clients pickier for good. Panel
(a) varies the distance at `QUANTITY`, panel (b) the quantity at `DISTANCE`. With label shift panel (a) comes out alike,
but not panel (b): one model can serve both clients once it has data enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fedcollab.reproduce import pictures
from fedcollab.reproduce.accuracy import MOST_SEEDS
from fedcollab.reproduce.cells import Cell
from fedcollab.reproduce.experiment import Experiment
from fedcollab.reproduce.output import Comparison, Output, Table
from fedcollab.reproduce.setups import Setup
from fedcollab.reproduce.workspace import Workspace

DISTANCE, QUANTITY, ROUNDS, SEEDS = 0.1, 400, 50, 5
DISTANCES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
QUANTITIES = (50, 100, 200, 400, 800, 1600, 3200)
WAYS = {"local": "alone", "global": "together"}


class TwoClient(Experiment):
    """Fashion-MNIST, MLP, FedAvg of two clients against each alone."""

    name = "two-client"
    title = "Two clients: local against global model as distance and quantity grow"
    place = "Figure 1, Section 1"
    time = "5 min"
    scenarios = ("label-shift",)

    def cells(self, workspace: Workspace) -> Iterator[Cell]:
        """Yield the cells of both ways at every point of both panels."""
        for seed in self._seeds(workspace):
            for setup in {
                setup.tag: setup for panel in panels(workspace).values() for setup in panel.values()
            }.values():
                for way in WAYS:
                    yield workspace.training_cell(setup, seed, "fedavg", way)

    def reduced(self, workspace: Workspace) -> list[str]:
        """Return how many rounds and seeds a quick run has."""
        if workspace.choices.size == "full":
            return []
        first = next(iter(panels(workspace)["distance"].values()))
        return [f"{first.rounds} rounds instead of {ROUNDS}, 1 seed instead of {SEEDS}"]

    def output(self, workspace: Workspace) -> Output:
        """Return a table and a picture, with the point where the local model overtakes."""
        tables, rows, text = [], [], []
        for panel, points in panels(workspace).items():
            lines: list[tuple[Any, ...]] = []
            for value, setup in points.items():
                runs = {way: self._runs(workspace, setup, way) for way in WAYS}
                if not all(runs.values()):
                    continue
                gains = [100 * (b - a) for a, b in zip(*runs.values(), strict=True)]
                shown = [Comparison(tuple(100 * run for run in values)) for values in runs.values()]
                lines.append((value, *shown, Comparison(tuple(gains)), len(gains)))
                rows += [
                    {"panel": panel, "value": value, "way": WAYS[way], "accuracy": float(np.mean(values))}
                    for way, values in runs.items()
                ]
            if lines:
                first = next(iter(points.values()))
                fixed = f"{first.options['quantity']} samples each" if panel == "distance" else f"distance {DISTANCE}"
                columns = (panel, "alone", "together", "gain of training together", "seeds")
                tables.append(Table(f"Varying {panel}, {fixed}, {first.rounds} rounds", columns, lines, key=panel))
                text.append(crossing(panel, [(line[0], line[3].mean) for line in lines]))
        return Output(tables, {self.name: pictures.two_panels(rows)} if rows else {}, text)

    def _seeds(self, workspace: Workspace) -> range:
        """Return the seeds to run."""
        small = 1 if workspace.choices.size != "full" else SEEDS
        return range(small if workspace.choices.seeds is None else workspace.choices.seeds)

    def _runs(self, workspace: Workspace, setup: Setup, way: str) -> list[float]:
        """Return the mean accuracy of each seed that the `workspace` has of `setup`, trained one `way`."""
        found = [workspace.get(workspace.training_cell(setup, seed, "fedavg", way)) for seed in range(MOST_SEEDS)]
        return [float(np.mean(result["accuracy"])) for result in found if result is not None]


def panels(workspace: Workspace) -> dict[str, dict[float, Setup]]:
    """Return the setups of panels (a) and (b) of the figure, by distance and by quantity."""
    base = workspace.setups["label-shift"]
    usual = {"full": ROUNDS, "quick": 10, "tiny": 2}[workspace.choices.size]
    base = replace(base, scenario="two-client", rounds=workspace.choices.rounds or usual, options={}, notes=())
    if workspace.choices.size == "tiny":
        return {
            "distance": {d: _at(base, d, 20, test=20) for d in (0.0, 1.0)},
            "quantity": {m: _at(base, DISTANCE, m, test=20) for m in (10, 20)},
        }
    return {
        "distance": {d: _at(base, d, QUANTITY) for d in DISTANCES},
        "quantity": {m: _at(base, DISTANCE, m) for m in QUANTITIES},
    }


def _at(base: Setup, distance: float, quantity: int, **more: Any) -> Setup:
    """Return the setup `base` with clients at one `distance` and `quantity`, and `more` options of the scenario."""
    options = {"shift": "concept", "distance": distance, "quantity": quantity, **more}
    return replace(base, options=options, tag=f"concept_d{distance:g}_m{quantity}_")


def crossing(panel: str, gains: list[tuple[float, float]]) -> str:
    """Return in a sentence where training together stops to pay, along one `panel` with its `gains`."""
    lost = [value for value, gain in gains if gain < 0]
    if not lost:
        return f"By {panel}: training together pays at every point."
    kept = [value for value, gain in gains if gain >= 0 and value < min(lost)]
    return (
        f"By {panel}: training together pays up to {max(kept):g}, training alone from {min(lost):g} on."
        if kept
        else f"By {panel}: training alone is better from {min(lost):g} on."
    )
