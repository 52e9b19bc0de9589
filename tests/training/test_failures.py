"""What goes wrong in training is said clearly, and what was reached before is kept."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from fedcollab.data import ClientData
from fedcollab.errors import FedcollabWarning, InputError, Paused
from fedcollab.training import ALGORITHMS, Algorithm, TrainingResult, train

SMALL = {"model_options": {"widths": [8]}, "rounds": 3, "lr": 0.1, "stopping": "none"}
TYPES = [["a", "b", "c"], ["d", "e", "f"]]


def test_nan_stops_that_coalition_and_keeps_the_last_good_model(clients: list[ClientData], tmp_path) -> None:
    """Client d's features explode in the third round's terms: its coalition stops, the other goes on."""
    broken = [c if c.name != "d" else ClientData("d", np.asarray(c.x) * 1e18, c.y, c.x_test, c.y_test) for c in clients]
    with pytest.warns(FedcollabWarning, match=r"stopped in round 1: .* client `d` became NaN or infinite"):
        result = train(broken, TYPES, "ditto", scale="none", run_dir=tmp_path, **SMALL)
    assert list(result.stopped) == [1]
    assert "round 1" in result.stopped[1]
    assert "client `d`" in result.stopped[1]
    assert np.isfinite(result.models["last"]).all()
    assert np.isfinite(result.models["personal"]).all()
    rounds = {name: [r["round"] for r in result.history if r["client"] == name and r["train_loss"]] for name in "ae"}
    assert rounds["a"] == [1, 2, 3]
    assert rounds["e"] in ([], [1])
    assert TrainingResult.load(tmp_path).stopped == result.stopped


@pytest.mark.parametrize("runtime", ["vectorised", "wire"])
def test_a_client_that_fails_is_left_out_and_named(clients: list[ClientData], runtime: str) -> None:
    class Fails(Algorithm):
        def step(self, w, message, state, grad, batch) -> None:
            if 25 in batch.sizes:
                raise RuntimeError("the disk is full")
            grad.descend(w, batch)

    clients = [c for c in clients if c.name != "f"]
    try:
        with pytest.warns(FedcollabWarning, match=r"round 1: client `c` failed \(RuntimeError: the disk is full\)"):
            result = train(clients, [["a", "b", "c"], ["d", "e"]], Fails(), runtime=runtime, **SMALL)
    finally:
        del ALGORITHMS["Fails"]
    assert result.failures == [(number, "c", "RuntimeError: the disk is full") for number in (1, 2, 3)]
    without = train([c for c in clients if c.name != "c"], [["a", "b"], ["d", "e"]], scale="none", **SMALL)
    assert result.models["last"].shape == without.models["last"].shape
    assert np.isfinite(result.accuracy).all()
    assert not result.stopped


def test_everyone_failing_pauses_in_one_line(clients: list[ClientData]) -> None:
    class Hopeless(Algorithm):
        def step(self, w, message, state, grad, batch) -> None:
            raise RuntimeError("no")

    try:
        with pytest.raises(
            Paused,
            match=r"0 of 6 client\(s\) answered `train` of round 1, 3 must: "
            r"`a`, `b`, `c`, `d`, `e` \(RuntimeError: no\), 1 more",
        ):
            train(clients, "global", Hopeless(), **SMALL)
    finally:
        del ALGORITHMS["Hopeless"]


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("mpl", {}, r"`model` \(='mpl'\) must be one of: .*; did you mean 'mlp'\?"),
        ("mlp", {"width": 3}, r"model 'mlp': `option` \(='width'\) must be one of: widths; did you mean 'widths'\?"),
        ("mlp", {"widths": [0]}, r"`widths` \(=0\) must be a whole number of at least 1"),
        ("logistic", {"widths": [3]}, r"model 'logistic': `option` \(='widths'\): it has none"),
        ("cnn", {}, r"model 'cnn' needs images of at least 18 x 18 .* the clients have \(4,\)"),
        (lambda: nn.Linear(4, 7), {}, r"gives output \(2, 7\) for 2 samples; the labels need \(2, 2\)"),
        (lambda: nn.Linear(5, 2), {}, r"does not take features of shape \(4,\)"),
        (lambda: nn.Flatten(), {}, r"has no parameters to train"),
        (lambda: "model", {}, r"gave a str; expected a torch.nn.Module"),
        (3, {}, r"`model` \(=3\) must be a name, a factory"),
    ],
)
def test_bad_models(clients: list[ClientData], model, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(clients, "global", model=model, model_options=options, rounds=1, lr=0.1)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rounds": 0}, r"`rounds` \(=0\) must be a whole number of at least 1"),
        ({"lr": -1}, r"`lr` \(=-1\) must be a finite number above 0"),
        ({"batch_size": 1.5}, r"`batch_size` \(=1.5\) must be a whole number"),
        ({"local_epochs": 0}, r"`local_epochs` \(=0\)"),
        ({"participation": 1.5}, r"`participation` \(=1.5\)"),
        ({"evaluate_every": 0}, r"`evaluate_every` \(=0\)"),
        ({"stopping": "early"}, r"`stopping` \(='early'\) must be one of: held-out, none"),
        ({"model": "auto"}, r"`model` \(='auto'\) needs `stopping` \(='held-out'\)"),
        ({"optimizer": "lion"}, r"`optimizer` \(='lion'\) must be one of: adam, sgd"),
        ({"weight_decay": -1}, r"`weight_decay` \(=-1\)"),
        ({"keep": ["9"]}, r"`keep` \(='9'\) must be one of: 1.bias, 1.weight, 3.bias, 3.weight, output-bias"),
        ({"keep": "output-bias"}, r"`keep` \(='output-bias'\) must be a list"),
        ({"keep": ["1", "3"]}, r"`keep` \(=\['1', '3'\]\) leaves no parameter"),
        ({"runtime": "wires"}, r"`runtime` \(='wires'\) must be one of: flower-simulation, vectorised, wire"),
    ],
)
def test_bad_settings(clients: list[ClientData], changed: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(clients, "global", **SMALL | changed)


@pytest.mark.parametrize(
    ("coalitions", "message"),
    [
        ([["a", "b"], ["c", "d", "e", "x"]], "names 'x', which is not a client; clients: a, b, c, d, e, f"),
        ([["a", "b", "c"], ["c", "d", "e", "f"]], "has the client 'c' twice"),
        ([["a", "b", "c"], ["d", "e"]], "lacks the client 'f'"),
        ("everyone", "must be lists of client names, 'local' or 'global'"),
        (3, "must be lists of client names"),
    ],
)
def test_bad_coalitions(clients: list[ClientData], coalitions, message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(clients, coalitions, **SMALL)
