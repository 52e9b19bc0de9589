"""A numeric target between real processes: Flower carries what wire carries, under the limits of a silo too."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from fedcollab.data import ClientData
from fedcollab.federation import federate
from fedcollab.flower import connect_federation
from fedcollab.training import compare, train
from fedcollab.wire import Wire

from .conftest import Running

pytestmark = pytest.mark.federation
GROUPS = [["north", "south"], ["east"]]


def walks(name: str, rows: int, slope: float) -> ClientData:
    """Return a client whose target is a number of minutes."""
    rng = np.random.default_rng(list(name.encode()))
    x = rng.normal(size=(rows + 60, 3))
    y = 40 + 9 * x[:, 0] + slope * x[:, 1] + rng.normal(size=len(x))
    return ClientData(name, x[:rows], y[:rows], x[rows:], y[rows:])


@pytest.fixture(scope="module")
def walking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    federation = Running(tmp_path_factory.mktemp("walks"))
    federation.clients = [walks("north", 120, 5), walks("south", 80, 5), walks("east", 120, -5)]
    try:
        federation.make()
        yield federation
    finally:
        federation.stop()


def test_flower_carries_a_numeric_target_as_wire_does(walking: Running) -> None:
    wire = Wire(walking.clients, keys=walking.keys())
    with connect_federation(walking.folder) as flower:
        there, here = (federate(each, seed=3) for each in (flower, wire))
        assert there.schema == here.schema
        assert there.schema.task == "regression"
        results = {}
        for algorithm in ("fedavg", "own-intercept"):
            results[algorithm] = [
                train(each, GROUPS, algorithm, "logistic", rounds=3, lr=0.05, batch_size=16, seed=3)
                for each in (there, here)
            ]
            first, second = results[algorithm]
            assert first.rounds == second.rounds
            np.testing.assert_allclose(first.models["last"], second.models["last"], rtol=0, atol=1e-5)
            for key, values in second.measures.items():
                np.testing.assert_allclose(first.measures[key], values, rtol=0, atol=1e-4)
        compared = [
            compare(each, {name: pair[side] for name, pair in results.items()})
            for side, each in enumerate((there, here))
        ]
        for part in ("unexplained", "unexplained_spread", "loss"):
            np.testing.assert_allclose(getattr(compared[0], part), getattr(compared[1], part), rtol=0, atol=1e-4)
