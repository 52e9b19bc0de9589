"""What a silo refuses to a server that grows trees, and what its histograms cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcollab.data import ClientData
from fedcollab.federation import federate
from fedcollab.silo.guard import Guard
from fedcollab.training.algorithms import make_algorithm
from fedcollab.training.opening import Steps, open_session
from fedcollab.training.trees import client
from fedcollab.training.trees.boosting import agreed_cuts
from fedcollab.training.trees.forest import Forest
from fedcollab.training.trees.histograms import bin_rows
from fedcollab.wire.limits import Limits
from fedcollab.wire.message import Message, pack, unpack
from fedcollab.wire.silo import Silo

OPTIONS = {"rounds": 5, "max_depth": 2}


class Asked:
    """A silo under its guard that is asked about trees; every question changes a proper one."""

    def __init__(self, clients: list[ClientData], folder: Path, **limits: Any) -> None:
        federation = federate(clients)
        self.session = open_session(federation, *make_algorithm("fedavg"), Steps("xgboost", OPTIONS))
        self.cuts = agreed_cuts(self.session)
        self.limits = Limits(**{"min_samples": 5, **limits})
        self.guard = Guard.at(folder, self.limits)
        self.silo = Silo(clients[0], limits=self.limits)
        self.silo.state["prepare"] = {"schema": federation.schema.to_json()}

    def message(self, **changed: Any) -> Message:
        proper = {
            "setting": self.session.text, "round": 1, "level": 0, "training": "t", "coalition": ["a", "b"],
            "w": self.session.initial.numpy()[None].copy(), "cuts": self.cuts.values, "ends": self.cuts.ends,
        }  # fmt: skip
        return {**proper, **changed}

    def ask(self, action: str = "train-trees", **changed: Any) -> Message:
        silo = replace(self.silo, state=dict(self.silo.state))
        served = self.guard.serve(action, pack(self.message(**changed)), silo)
        if served.done:
            self.silo = silo
        return unpack(served.content)

    def cost(self) -> Any:
        return self.guard.log.entries()[-1]["cost"]

    def split(self, feature: int) -> Any:
        """Weights with the first tree's root split by a feature."""
        w = self.session.initial.numpy()[None].copy()
        growing = self.session.growing
        assert growing is not None
        forest = Forest.of(w[0], growing.shape)
        forest.feature[0, 0, 0] = feature + 1
        forest.threshold[0, 0, 0] = self.cuts.of(feature)[len(self.cuts.of(feature)) // 2]
        return w


@pytest.fixture
def asked(clients: list[ClientData], tmp_path: Path) -> Any:
    return lambda **limits: Asked(clients, tmp_path, **limits)


def test_a_tree_costs_one_round_and_another_tree_another(asked: Any) -> None:
    silo = asked()
    silo.ask()
    assert silo.cost() == {"rounds": 1}
    assert "sums" in silo.ask(level=1, w=silo.split(0))
    assert silo.cost() == {}
    silo.ask(level=1, w=silo.split(1))  # the same level again, of another tree
    assert silo.cost() == {"rounds": 1}
    silo.ask(level=1, w=silo.split(1), training="another")
    assert silo.cost() == {"rounds": 1}


def test_the_budget_ends_the_questions(asked: Any) -> None:
    silo = asked(max_rounds=2)
    for feature in range(2):
        assert "sums" in silo.ask(level=1, w=silo.split(feature))
    assert "2 are spent" in silo.ask(level=1, w=silo.split(2))["refused"]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"coalition": ["b", "c"]}, "the coalition is b, c"),
        ({"coalition": ["a"]}, "at least 2 clients"),
        ({"level": 2}, "beyond what `setting` says"),
        ({"round": 6}, "beyond what `setting` says"),
        ({"ends": np.zeros(3, dtype=np.int64)}, "`ends` must say where"),
        ({"w": np.zeros((1, 7), dtype=np.float32)}, "the message has 7"),
        ({"setting": "{}"}, "`setting`"),
    ],
)
def test_what_does_not_fit_is_refused(asked: Any, changed: dict[str, Any], why: str) -> None:
    assert why in asked(min_coalition=2).ask(**changed)["refused"]


def test_thresholds_out_of_order_and_features_that_there_are_not_are_refused(asked: Any) -> None:
    silo = asked()
    assert "ascend" in silo.ask(cuts=silo.cuts.values[::-1].copy())["refused"]
    assert "features that there are not" in silo.ask(w=silo.split(0) * 99)["refused"]
    assert "in round 0 there are no trees" in silo.ask(round=0, w=silo.split(0))["refused"]


def test_silos_that_send_masked_updates_alone_grow_no_trees(asked: Any) -> None:
    assert "not masked" in asked(secure_aggregation=True).ask()["refused"]


def test_trees_have_no_updates_of_weights(asked: Any) -> None:
    silo = asked()
    message = {key: value for key, value in silo.message(w=silo.session.initial.numpy()).items()
               if key not in ("level", "cuts", "ends")}  # fmt: skip
    served = silo.guard.serve("train", pack(message), silo.silo)
    assert "grown by histograms" in unpack(served.content)["refused"]


def test_trees_far_from_any_use_are_refused(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MOST_LOSS", 0.9)  # wrong for half of the rows is enough
    silo = asked()
    assert "sums" in silo.ask()
    w = silo.session.initial.numpy()[None].copy()
    w[0, : silo.session.network.parameters][-2:] = (0, 5e3)
    assert "far from any use" in silo.ask(w=w)["refused"]


def test_no_count_and_no_sum_is_of_fewer_rows_than_the_limit(asked: Any) -> None:
    silo = asked(min_samples=8, blur_updates=False, round_measures=False)
    edges = np.linspace(-3, 3, 100, dtype=np.float32)
    ends = 100 * np.arange(1, 5)
    counts = silo.ask("count-rows", round=0, cuts=np.tile(edges, 4), ends=ends)
    assert "is not expected" in counts["refused"]
    message = {"setting": silo.session.text, "round": 0, "cuts": np.tile(edges, 4), "ends": ends}
    counts = unpack(silo.guard.serve("count-rows", pack(message), silo.silo).content)["counts"]
    assert counts.sum() == 4 * 60
    assert np.all((counts == 0) | (counts >= 8))
    hessians = 4 * silo.ask()["sums"][0, :, 1]  # at margin 0 every row has 1 / 4
    assert np.all((hessians < 1e-9) | (hessians > 8 - 1e-9))


def test_sums_have_an_error_that_the_same_question_does_not_average_away(asked: Any) -> None:
    exact, blurred = (asked(min_samples=1, round_measures=False, blur_updates=blur) for blur in (False, True))
    plain, one, two = exact.ask()["sums"], blurred.ask()["sums"], blurred.ask()["sums"]
    np.testing.assert_array_equal(one, two)
    arrays = blurred.silo.arrays
    bins, y = bin_rows(arrays.x, blurred.cuts), arrays.y
    for place in np.unique(bins[0]):
        inside = bins[0] == place
        error = 0.5 * np.sqrt(((0.5 - y[inside]) ** 2).sum())
        assert 0 < abs(plain[0, place, 0] - one[0, place, 0]) < 5 * error
    whole = np.add.reduceat(one - plain, blurred.cuts.offsets[:-1], axis=1)[0]
    np.testing.assert_allclose(whole, whole[:1].repeat(4, axis=0), atol=1e-9)  # no other total by another feature
    assert np.abs(whole).min() > 1e-6
