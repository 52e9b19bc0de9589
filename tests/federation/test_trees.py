"""Trees between real processes are those of the wire, under the same limits."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcollab import advise
from fedcollab.federation import federate
from fedcollab.flower import connect_federation, own_model
from fedcollab.training import train
from fedcollab.wire import Wire
from fedcollab.wire.action import ACTIONS, Action
from fedcollab.wire.limits import make_limits
from fedcollab.wire.message import pack, unpack
from fedcollab.wire.silo import Silo

from .conftest import Running

COALITIONS = [["north", "south"], ["east", "west"]]
#: as `conftest.Running.add` has them
LIMITS = make_limits(
    {"preset": "open", "round_measures": False, "blur_updates": False, "min_batch": 1}, frozenset(ACTIONS)
)


class Limited(Wire):
    """A wire runtime whose silos have the limits of those of the federation: cells of few rows are joined."""

    min_samples = LIMITS.min_samples
    models_stay = few_rounds = True

    def _serve(self, action: Action, name: str, content: bytes) -> bytes:
        kept = {key: unpack(value) for key, value in self._state[name].items()}
        silo = Silo(self._data[name], kept, self.device, LIMITS, self._keys[name])
        reply = pack(action(unpack(content), silo))
        self._state[name] = {key: pack(value) for key, value in silo.state.items()}
        return reply


def test_flower_grows_the_trees_that_wire_grows(running: Running) -> None:
    how: dict[str, Any] = {"model": "xgboost", "rounds": 3, "lr": 0.3, "seed": 3, "model_options": {"max_depth": 2}}
    wire = Limited(running.clients, keys=running.keys())
    with connect_federation(running.folder) as flower:
        there, here = (federate(each, seed=3) for each in (flower, wire))
        for algorithm in ("fedavg", "own-intercept"):
            over_flower, over_wire = (train(each, COALITIONS, algorithm, **how) for each in (there, here))
            assert over_flower.failures == over_wire.failures == []
            assert over_flower.rounds == over_wire.rounds
            np.testing.assert_array_equal(over_flower.models["last"], over_wire.models["last"])
            np.testing.assert_allclose(over_flower.reported_loss, over_wire.reported_loss, atol=1e-6)
            for name, curve in over_wire.held_out.items():
                np.testing.assert_allclose(over_flower.held_out[name], curve, atol=1e-6)
        one, other = (advise(each, **how) for each in (there, here))
    assert (one.verdict, one.coalitions, one.plan) == (other.verdict, other.coalitions, other.plan)
    for client in running.clients:
        model = own_model(running.root / client.name / "silo.toml")
        assert '"name": "gbtree"' in model.xgboost_json()
        assert np.mean(model.predict(client.x_test) == client.y_test) > 0.7
