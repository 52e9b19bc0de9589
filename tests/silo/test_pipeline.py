"""The whole pipeline of an honest coordinator, under `usual` limits and two approved plans: nothing is refused.

inspect, schema, distances and advice belong to the look; training, testing and comparison to the train plan, whose
coalitions are those that the advice gave. The same is done by silos without limits. The coalitions must be the same,
and the accuracies within noise: with n test samples of a client, accuracies p and q,

    z = (p - q) / sqrt((p (1 - p) + q (1 - q)) / n + e^2),        e the error that rounding adds to p

is at most 3.5 for every client, and the mean difference at most 3 of its standard errors. (The two trainings draw other
batches and, under limits, updates carry errors; the same test samples make the bound wide rather than narrow.)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("msgspec")
pytest.importorskip("cryptography")

from fedcollab.advice import advise
from fedcollab.data import ClientData
from fedcollab.distances import estimate_distances
from fedcollab.errors import InputError
from fedcollab.federation import federate
from fedcollab.flower.coordinator.planning import needed_budget
from fedcollab.inspection import inspect
from fedcollab.scenarios import federation_clients
from fedcollab.silo.guard import Guard
from fedcollab.silo.plans import Approved, Plan, Training
from fedcollab.silo.rounding import SHARE, share_errors
from fedcollab.training import compare, train
from fedcollab.wire import Wire
from fedcollab.wire.action import Action
from fedcollab.wire.limits import make_limits
from fedcollab.wire.message import Message, pack, unpack
from fedcollab.wire.silo import Silo

USUAL = make_limits({"preset": "usual"}, ())
HOW: dict[str, Any] = {"model": "logistic", "rounds": 8, "lr": 0.1, "batch_size": 32}
TRAINING = Training("logistic", "fedavg", batch_size=32, rounds=8, lr=0.1, options={})
APPROVED = "2026-01-01T00:00:00+00:00"


class Free(Wire):
    """Silos without limits, in a runtime whose rounds cost seconds, as in a real federation."""

    few_rounds = models_stay = True


class Planned(Free):
    """Silos with keys of their own, `usual` limits, and the plans that they have approved."""

    def __init__(self, clients: list[ClientData], folder: Path) -> None:
        super().__init__(clients)
        self.guards = {name: Guard.at(folder / name, USUAL) for name in self.names}

    def approve(self, plan: Plan) -> None:
        """Have every silo approve a plan."""
        for name, guard in self.guards.items():
            self.guards[name] = Guard(guard.log, guard.limits, [*guard.plans, Approved(plan, APPROVED)])

    def _serve(self, action: Action, name: str, content: bytes) -> bytes:
        kept: dict[str, Message] = {key: unpack(value) for key, value in self._state[name].items()}
        silo = Silo(self._data[name], kept, limits=USUAL, key=name.encode() * 4)
        served = self.guards[name].serve(action.name, content, silo, run="1")
        if served.done:
            self._state[name] = {key: pack(value) for key, value in silo.state.items()}
        return served.content


@pytest.fixture(scope="module")
def hospitals() -> list[ClientData]:
    """Return the four heart hospitals where they are on this machine, else breast tumours dealt to five clients."""
    try:
        return federation_clients("heart", 0)
    except InputError:
        from sklearn.datasets import load_breast_cancer

        x, y = load_breast_cancer(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(y))
        parts = [(order[k::5][:80], order[k::5][80:]) for k in range(5)]
        return [ClientData(f"clinic {k}", x[one], y[one], x[rest], y[rest]) for k, (one, rest) in enumerate(parts)]


def pipeline(runtime: Free, coalitions: Any = None) -> dict[str, Any]:
    """Return what an honest coordinator learns: findings, distances, advice, training (as advised) and comparison."""
    partners = dict.fromkeys(runtime.names, "")
    count = len(partners)
    if isinstance(runtime, Planned):
        how: dict[str, Any] = {"methods": ("few-round",), "candidates": 6, "training": TRAINING}
        runtime.approve(Plan("hearts", "look", partners, needed_budget("look", count, **how), **how))
    found = inspect(runtime)
    federation = federate(runtime)
    distances = estimate_distances(federation, method="few-round")
    advice = advise(federation, distances=distances, **HOW)
    groups = tuple(tuple(map(str, members)) for members in coalitions or advice.coalitions)
    if isinstance(runtime, Planned):
        pinned: dict[str, Any] = {"training": TRAINING, "coalitions": groups, "comparison_alone": True}
        budget = needed_budget("train", count, training=TRAINING, alone=True)
        runtime.approve(Plan("hearts", "train", partners, budget, **pinned))
    together = train(federation, [list(members) for members in groups], **HOW)
    alone = train(federation, "local", **HOW)
    compared = compare(federation, {"together": together, "alone": alone})
    return {
        "findings": found,
        "advice": advice,
        "together": together,
        "alone": alone,
        "compared": compared,
    }


def test_an_honest_pipeline_is_never_refused_and_finds_the_same(hospitals: list[ClientData], tmp_path: Path) -> None:
    runtime = Planned(hospitals, tmp_path)
    free = pipeline(Free(hospitals))
    guarded = pipeline(runtime, free["advice"].coalitions)
    entries = [entry for guard in runtime.guards.values() for entry in guard.log.entries()]
    assert [entry["why"] for entry in entries if entry["outcome"] != "answered"] == []
    steps = {entry["step"] for entry in entries}
    assert {"look: data check", "look: schema", "look: distances", "look: advice", "look: choice of rounds"} <= steps
    assert {"train: choice of rounds", "train: training", "train: testing"} <= steps
    if "no clear difference" not in {guarded["advice"].verdict, free["advice"].verdict}:  # else noise may decide
        assert guarded["advice"].coalitions == free["advice"].coalitions
    assert guarded["findings"].findings == free["findings"].findings
    for which in ("together", "alone"):
        limited, plain = guarded[which], free[which]
        assert not limited.failures
        p, q = np.asarray(limited.accuracy), np.asarray(plain.accuracy)
        tests = np.array([len(runtime._data[name].y_test) for name in limited.names])
        spread = np.sqrt((p * (1 - p) + q * (1 - q)) / tests + (2 * SHARE * share_errors(p, tests)) ** 2)
        assert np.abs((p - q) / spread).max() <= 3.5, (p, q)
        assert abs(np.mean(p - q)) <= 3 * np.sqrt(np.sum(spread**2)) / len(p), (p, q)
    assert set(guarded["compared"].names) == set(runtime.names)
