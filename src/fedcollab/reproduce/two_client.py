"""Figure 1: two clients. Does the global or the local model do better, as their distance and their quantity grow?

The paper gives no parameters; `fedcollab.scenarios.two_clients` says which were chosen (concept shift). With label
shift panel (a) comes out alike, but not panel (b): one model can serve both clients once it has data enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fedcollab.reproduce import pictures
from fedcollab.reproduce.cells import Cell
from fedcollab.reproduce.experiment import Experiment
from fedcollab.reproduce.lab import Lab
from fedcollab.reproduce.output import Figure, Output, Table
from fedcollab.reproduce.setups import Setup
from fedcollab.scenarios.two_clients import DISTANCE, DISTANCES, QUANTITIES

QUANTITY, ROUNDS, SEEDS = 400, 50, 5
WAYS = {"local": "alone", "global": "together"}


class TwoClient(Experiment):
    """Fashion-MNIST, MLP, FedAvg of two clients against each alone."""

    name = "two-client"
    title = "Two clients: local against global model as distance and quantity grow"
    place = "Figure 1, Section 1"
    time = "5 min"
    scenarios = ("label-shift",)

    def cells(self, lab: Lab) -> Iterator[Cell]:
        """Both ways at every point of both panels."""
        for seed in self._seeds(lab):
            for setup in {setup.tag: setup for panel in panels(lab).values() for setup in panel.values()}.values():
                for way in WAYS:
                    yield lab.training_cell(setup, seed, "fedavg", way)

    def reduced(self, lab: Lab) -> list[str]:
        """Rounds and seeds."""
        first = next(iter(panels(lab)["distance"].values()))
        return (
            []
            if lab.asked.size == "full"
            else [f"{first.rounds} rounds instead of {ROUNDS}, 1 seed instead of {SEEDS}"]
        )

    def output(self, lab: Lab) -> Output:
        """A table and a picture, with the point where the local model overtakes."""
        tables, rows, text = [], [], []
        for panel, points in panels(lab).items():
            lines: list[tuple[Any, ...]] = []
            for value, setup in points.items():
                runs = {way: self._runs(lab, setup, way) for way in WAYS}
                if not all(runs.values()):
                    continue
                gains = [100 * (b - a) for a, b in zip(*runs.values(), strict=True)]
                shown = [Figure(tuple(100 * run for run in values)) for values in runs.values()]
                lines.append((value, *shown, Figure(tuple(gains)), len(gains)))
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

    def _seeds(self, lab: Lab) -> range:
        small = 1 if lab.asked.size != "full" else SEEDS
        return range(small if lab.asked.seeds is None else lab.asked.seeds)

    def _runs(self, lab: Lab, setup: Setup, way: str) -> list[float]:
        found = [lab.get(lab.training_cell(setup, seed, "fedavg", way)) for seed in range(20)]
        return [float(np.mean(result["accuracy"])) for result in found if result is not None]


def panels(lab: Lab) -> dict[str, dict[float, Setup]]:
    """The setups of Figure 1 (a) and (b)."""
    base = lab.setups["label-shift"]
    usual = {"full": ROUNDS, "quick": 10, "tiny": 2}[lab.asked.size]
    base = replace(base, scenario="two-client", rounds=lab.asked.rounds or usual, options={}, notes=())
    if lab.asked.size == "tiny":
        return {
            "distance": {d: _at(base, d, 20, test=20) for d in (0.0, 1.0)},
            "quantity": {m: _at(base, DISTANCE, m, test=20) for m in (10, 20)},
        }
    return {
        "distance": {d: _at(base, d, QUANTITY) for d in DISTANCES},
        "quantity": {m: _at(base, DISTANCE, m) for m in QUANTITIES},
    }


def _at(base: Setup, distance: float, quantity: int, **more: Any) -> Setup:
    options = {"shift": "concept", "distance": distance, "quantity": quantity, **more}
    return replace(base, options=options, tag=f"concept_d{distance:g}_m{quantity}_")


def crossing(panel: str, gains: list[tuple[float, float]]) -> str:
    """Where training together stops to pay, in a sentence."""
    lost = [value for value, gain in gains if gain < 0]
    if not lost:
        return f"By {panel}: training together pays at every point."
    kept = [value for value, gain in gains if gain >= 0 and value < min(lost)]
    return (
        f"By {panel}: training together pays up to {max(kept):g}, training alone from {min(lost):g} on."
        if kept
        else (f"By {panel}: training alone is better from {min(lost):g} on.")
    )
