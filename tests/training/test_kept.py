"""Parameters that stay with the client: they are trained there, used there, and never in a reply."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedcollab.data import ClientData
from fedcollab.training import load_model, train
from fedcollab.wire import Wire

SETTINGS: dict[str, Any] = {"rounds": 6, "lr": 0.3, "stopping": "none"}


@pytest.fixture(scope="module")
def shifted() -> list[ClientData]:
    """Four clients with one rule for x and very different shares of the labels."""
    rng = np.random.default_rng(3)
    clients = []
    for name, intercept in zip("abcd", (-3.0, -1.0, 1.0, 3.0), strict=True):
        x = rng.normal(size=(260, 2))
        y = (x @ [1.5, -1.0] + intercept + rng.logistic(size=260) > 0).astype(int)
        clients.append(ClientData(name, x[:160], y[:160], x[160:], y[160:]))
    return clients


def replies_of(clients: list[ClientData], **settings: Any) -> list[dict[str, Any]]:
    """Train over the wire and return every reply of `train` and `train-folds`, in order."""
    seen: list[dict[str, Any]] = []

    class Spied(Wire):
        def _call(self, action: Any, messages: Any) -> Any:
            replies = super()._call(action, messages)
            if action.name in ("train", "train-folds"):
                seen.extend(reply for reply in replies.values() if "w" in reply)
            return replies

    train(Spied(clients), "global", **SETTINGS | settings)
    return seen


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "ditto", "fednova"])
def test_what_is_kept_is_in_no_reply(shifted: list[ClientData], algorithm: str) -> None:
    settings: dict[str, Any] = {"algorithm": algorithm, "model": "logistic", "keep": ["output-bias"]}
    seen = replies_of(shifted, **settings, stopping="held-out")
    assert len(seen) > 2 * len(shifted)
    for reply in seen:
        rows = reply["w"].reshape(-1, reply["w"].shape[-1])
        np.testing.assert_array_equal(rows[:, 4:6], np.broadcast_to(seen[0]["w"][0, 4:6], rows[:, 4:6].shape))
        for key in set(reply) & {"change", "d"}:
            assert not reply[key][..., 4:6].any()


def test_each_client_has_its_own_intercept(shifted: list[ClientData], tmp_path: Any) -> None:
    result = train(shifted, "global", "own-intercept", "logistic", run_dir=tmp_path, **SETTINGS | {"rounds": 40})
    shared = train(shifted, "global", "fedavg", "logistic", **SETTINGS | {"rounds": 40})
    own = result.models["personal"]
    assert np.ptp(own[:, :4], axis=0).max() == 0  # the weights are the coalition's
    lean = own[:, 5] - own[:, 4]
    assert (np.diff(lean) > 0.5).all()  # in the order of the clients' shares of label 1
    assert result.reported_loss.mean() < shared.reported_loss.mean() - 0.05
    client = shifted[3]
    correct = (load_model(tmp_path, client="d").predict(client.x_test) == client.y_test).mean()
    assert correct == pytest.approx(result.reported[3])


def test_own_intercept_is_fedavg_that_keeps_the_output_bias(shifted: list[ClientData]) -> None:
    named = train(shifted, [["a", "b"], ["c", "d"]], "own-intercept", "mlp", **SETTINGS)
    general = train(shifted, [["a", "b"], ["c", "d"]], "fedavg", "mlp", keep=["output-bias"], **SETTINGS)
    np.testing.assert_array_equal(named.models["personal"], general.models["personal"])


def test_a_client_alone_that_keeps_a_layer_trains_as_if_it_did_not(shifted: list[ClientData]) -> None:
    plain = train(shifted, "local", "fedavg", "mlp", **SETTINGS)
    kept = train(shifted, "local", "fedavg", "mlp", keep=["5"], **SETTINGS)
    np.testing.assert_allclose(kept.models["personal"], plain.models["last"], atol=1e-6)


def test_kept_layers_by_hand() -> None:
    """One feature, two samples, one step: the shared weights are averaged, each client has the bias of its own step."""
    samples = {"a": ([1.0, 3.0], [0, 1]), "b": ([-2.0, 0.5], [1, 0])}
    clients = [
        ClientData(n, np.array(x)[:, None], np.array(y), np.array(x)[:, None], np.array(y))
        for n, (x, y) in samples.items()
    ]
    settings = {"model": "logistic", "rounds": 1, "lr": 0.5, "stopping": "none", "scale": "none"}
    start = train(clients, "local", **settings | {"lr": 1e-12}).models["last"][0]
    result = train(clients, "global", "own-intercept", **settings)
    steps = []
    for x, y in samples.values():
        z = np.outer(x, start[:2]) + start[2:4]
        delta = (np.exp(z) / np.exp(z).sum(1, keepdims=True) - np.eye(2)[y]) / 2
        steps.append(np.concatenate([start[:2] - 0.5 * np.array(x) @ delta, start[2:4] - 0.5 * delta.sum(0)]))
    for row, own in zip(result.models["personal"], steps, strict=True):
        np.testing.assert_allclose(row[:2], (steps[0][:2] + steps[1][:2]) / 2, atol=1e-6)
        np.testing.assert_allclose(row[2:4], own[2:4], atol=1e-6)
