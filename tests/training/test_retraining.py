"""Training one coalition again: from ClientData it is what it is inside a federation, and it starts where it should."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedcollab import train
from fedcollab.data import ClientData
from fedcollab.errors import InputError
from fedcollab.training import TrainingResult, retrain
from fedcollab.wire import Vectorised, Wire

COALITIONS = [["a", "b"], ["c"], ["d", "e", "f"]]


@pytest.fixture
def trained(clients: list[ClientData]) -> TrainingResult:
    return train(clients, COALITIONS, model="logistic", rounds=10, lr=0.1)


def still(result: TrainingResult) -> TrainingResult:
    """The same training with steps too small to move a weight."""
    return replace(result, settings={**result.settings, "lr": 1e-12})


def test_it_starts_from_the_coalition_with_most_samples_in_common(
    clients: list[ClientData], trained: TrainingResult
) -> None:
    """c has 25 samples of its own coalition's, d and e 100 of theirs."""
    part = retrain(clients, still(trained), ["c", "d", "e"], rounds=1)
    assert part.names == ("c", "d", "e")
    for key, saved in trained.weights(client="d").items():
        np.testing.assert_allclose(part.weights(client="c")[key], saved, atol=1e-9)


def test_scratch_and_newcomers_start_from_new_weights(clients: list[ClientData], trained: TrainingResult) -> None:
    new = train(clients, COALITIONS, model="logistic", rounds=1, lr=1e-12)
    newcomer = ClientData("new", clients[0].x, clients[0].y, clients[0].x_test, clients[0].y_test)
    for part in (
        retrain(clients, still(trained), ["a"], scratch=True, rounds=1),
        retrain([*clients, newcomer], still(trained), ["new"], rounds=1),
    ):
        for key, value in new.weights(coalition=0).items():
            np.testing.assert_allclose(part.weights(coalition=0)[key], value, atol=1e-9)


def test_rounds_are_a_fifth_or_all(clients: list[ClientData], trained: TrainingResult) -> None:
    assert retrain(clients, trained, ["a", "b"]).settings["rounds"] == 2
    assert retrain(clients, trained, ["a", "b"], scratch=True).settings["rounds"] == 10


def test_a_coalition_from_scratch_is_what_training_all_of_them_gives(
    clients: list[ClientData], trained: TrainingResult
) -> None:
    """The others' rounds do not matter, and the schema is the whole federation's."""
    part = retrain(clients, trained, ["d", "e", "f"], scratch=True)
    np.testing.assert_allclose(part.accuracy, trained.accuracy[3:])
    np.testing.assert_allclose(part.loss, trained.loss[3:], atol=1e-6)


def test_a_client_with_an_unknown_label_is_refused(clients: list[ClientData], trained: TrainingResult) -> None:
    strange = ClientData("new", clients[0].x, clients[0].y + 5)
    with pytest.raises(InputError, match="client `new` has the label"):
        retrain([*clients, strange], trained, ["new"])


@pytest.mark.parametrize("runtime", [Vectorised, Wire])
def test_own_parameters_go_on_from_the_model_that_each_client_uses(clients: list[ClientData], runtime: Any) -> None:
    """They began anew, from the coalition's bias; now only a newcomer's do, and with new weights everybody's."""
    trained = train(runtime(clients), COALITIONS, "own-intercept", "logistic", rounds=10, lr=0.1, stopping="none")
    bias = [position for position, (key, _) in enumerate(layout_of(trained)) if "bias" in key]
    own = {name: trained.models["personal"][row, bias] for row, name in enumerate(trained.names)}
    assert np.abs(own["d"] - own["e"]).max() > 0.01
    newcomer = ClientData("new", clients[0].x, clients[0].y, clients[0].x_test, clients[0].y_test)
    there = runtime([*clients, newcomer])
    part = retrain(there, still(trained), ["d", "e", "new"], rounds=1)
    for row, name in enumerate(part.names):
        start = own.get(name, trained.models["last"][2][bias])
        np.testing.assert_allclose(part.models["personal"][row, bias], start, atol=1e-9)
    later = retrain(runtime([*clients, newcomer]), part, ["d", "new"], rounds=1)
    np.testing.assert_allclose(later.models["personal"][:, bias], part.models["personal"][[0, 2]][:, bias], atol=1e-9)
    anew = retrain(there, still(trained), ["d", "e"], scratch=True, rounds=1)
    assert np.ptp(anew.models["personal"][:, bias], axis=0).max() < 1e-9


def layout_of(result: TrainingResult) -> list[tuple[str, int]]:
    """The name of the parameter at each position of the flat weights."""
    return [(name, place) for name, shape in result.layout for place in range(int(np.prod(shape)))]
