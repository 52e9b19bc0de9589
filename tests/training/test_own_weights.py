"""Own weights: the fixed point is the bound's own, like rows share a model, and reductions to FedAvg and alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcollab.data import ClientData
from fedcollab.errors import InputError
from fedcollab.training import ALGORITHMS, train
from fedcollab.training.algorithms.own_weights import OwnWeights, share_rows

CENTRES = {"a": 1.0, "b": 3.0, "c": -2.0}
WEIGHTS = np.array([[0.7, 0.3, 0.0], [0.2, 0.5, 0.3], [0.0, 0.1, 0.9]])


class Quadratic(OwnWeights):
    """Client j's loss is |w - c_j|^2 / 2, with c_j the value of its only feature: curvature 1 everywhere."""

    def step(self, w: Any, message: Any, state: Any, grad: Any, batch: Any) -> None:
        centre = batch.x.flatten(1).mean(dim=1, keepdim=True)
        w -= 0.3 * (w - centre)
        grad.descend(w, batch, lr=0.0)


def constant_clients() -> list[ClientData]:
    y = np.tile([0, 1], 8)
    x = {name: np.full((20, 1), value) for name, value in CENTRES.items()}
    return [ClientData(name, values[:16], y, values[16:], y[:4]) for name, values in x.items()]


def test_on_quadratics_the_fixed_point_is_the_weighted_mean_of_the_minima(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALGORITHMS, "quadratic-own-weights", Quadratic)
    result = train(constant_clients(), "global", "quadratic-own-weights", "logistic", rounds=60, batch_size=16,
                   weights=WEIGHTS, stopping="none", scale="none", evaluate_every=None)  # fmt: skip
    wanted = WEIGHTS @ np.array(list(CENTRES.values()))
    for position, (members, model) in enumerate(zip(result.coalitions, result.models["last"], strict=True)):
        assert members == [list(CENTRES)[position]]
        np.testing.assert_allclose(model, wanted[position], atol=1e-4)


def made(names: str, seed: int = 0) -> list[ClientData]:
    rng = np.random.default_rng(seed)
    clients = []
    for position, name in enumerate(names):
        x = rng.normal(size=(60 + 10 * position, 5))
        y = (x[:, 0] > 0.2 * position).astype(int)
        clients.append(ClientData(name, x[:-20], y[:-20], x[-20:], y[-20:]))
    return clients


@pytest.mark.parametrize("keep", [(), ("output-bias",)])
@pytest.mark.parametrize("stopping", ["none", "held-out"])
def test_weights_by_quantity_are_fedavg_with_everyone_and_own_rows_are_alone(stopping: str, keep: Any) -> None:
    clients = made("abcd")
    m = np.array([len(client.y) for client in clients], dtype=float)
    options: dict[str, Any] = {"model": "logistic", "rounds": 6, "lr": 0.2, "stopping": stopping, "keep": keep}
    for weights, who in ((np.tile(m / m.sum(), (4, 1)), "global"), (np.eye(4), "local")):
        own, plain = train(clients, "global", "own-weights", weights=weights, **options), train(clients, who, **options)
        assert own.rounds == plain.rounds
        np.testing.assert_allclose(own.models["last"], plain.models["last"], atol=1e-6)
        np.testing.assert_allclose(own.reported_loss, plain.reported_loss, atol=1e-6)


def test_every_client_is_measured_with_its_own_intercept() -> None:
    clients = made("abc")
    weights = np.array([[0.6, 0.3, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]])
    kept = train(clients, "global", "own-weights", model="logistic", rounds=8, lr=0.3, weights=weights,
                 keep=["output-bias"], stopping="none")  # fmt: skip
    assert kept.models["personal"].shape == (3, 12)
    assert len({tuple(row[-2:]) for row in kept.models["personal"].round(4).tolist()}) == 3
    assert np.isfinite(kept.reported_loss).all()


def test_it_goes_on_from_a_checkpoint(tmp_path: Any) -> None:
    clients = made("abc")
    options: dict[str, Any] = {"model": "logistic", "rounds": 8, "lr": 0.3, "weights": WEIGHTS, "keep": ["output-bias"],
                               "stopping": "none", "evaluate_every": None}  # fmt: skip

    class Enough(RuntimeError):
        pass

    def stop(done: int, total: int) -> None:
        if done == 4:
            raise Enough

    with pytest.raises(Enough):
        train(clients, "global", "own-weights", run_dir=tmp_path, progress=stop, **options)
    again = train(clients, "global", "own-weights", run_dir=tmp_path, **options)
    whole = train(clients, "global", "own-weights", **options)
    np.testing.assert_array_equal(again.models["last"], whole.models["last"])
    np.testing.assert_array_equal(again.models["personal"], whole.models["personal"])


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 12), st.integers(1, 12), st.integers(0, 10**6))
def test_groups_partition_the_clients_and_rows_stay_weights(count: int, most: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(count, 0.3), size=count) * 0.9 + 0.1 * np.eye(count)
    names = [f"n{k:02d}" for k in range(count)]
    groups, shared = share_rows(weights, names, most)
    assert sorted(name for members in groups for name in members) == names
    assert 1 <= len(groups) <= most or len(groups) <= count
    assert len(groups) <= max(1, most)
    for position, members in enumerate(groups):
        assert sum(shared[position].values()) == pytest.approx(1.0)
        assert all(shared[position][name] > 0 for name in members)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (None, "needs `weights`"),
        (np.eye(3), "`weights` has shape"),
        (np.full((2, 2), 0.7), "sum to 1"),
        (np.array([[0.0, 1.0], [0.5, 0.5]]), "diagonal"),
        (np.array([[np.nan, 1.0], [0.5, 0.5]]), "finite"),
    ],
)
def test_bad_weights_are_one_clear_line(weights: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(made("ab"), "global", "own-weights", weights=weights, rounds=1)
