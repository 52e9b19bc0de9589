"""Gradients: by hand against finite differences and against autograd, stacked and ragged."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedcollab.training.batches import Batch, plan, shares, stacked
from fedcollab.training.gradient import Automatic, Dense
from fedcollab.training.models import Network

SIZES = (5, 3, 1)


def networks(name: str = "mlp", options: dict | None = None, shape: tuple[int, ...] = (4,), classes: int = 3):
    return Network(Network.describe(name, options or {}, shape, classes))


def make_batch(shape: tuple[int, ...] = (4,), classes: int = 3, sizes: tuple[int, ...] = SIZES) -> Batch:
    rng = np.random.default_rng(0)
    width = max(sizes)
    x = torch.from_numpy(rng.normal(0, 1, (len(sizes), width, *shape)).astype(np.float32))
    y = torch.from_numpy(rng.integers(0, classes, (len(sizes), width)))
    return Batch(x, y, shares(sizes, width), sizes)


def weights(network: Network, clients: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    w = torch.randn(clients, network.size, generator=generator) * 0.5
    w[:, network.parameters :] = 0
    return w


@pytest.mark.parametrize(("name", "options"), [("mlp", {"widths": [6, 5]}), ("mlp", {"widths": [7]}), ("logistic", {})])
def test_by_hand_equals_autograd(name: str, options: dict) -> None:
    network, batch = networks(name, options), make_batch()
    w = weights(network, 3)
    by_hand, automatic = Dense(network, 0.1, 3), Automatic(network, 0.1, 3)
    torch.testing.assert_close(by_hand(w, batch), automatic(w, batch), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(by_hand.mean_loss, automatic.mean_loss, atol=1e-6, rtol=1e-5)
    extra = torch.randn_like(w)
    extra[:, network.parameters :] = 0
    first, second = w.clone(), w.clone()
    by_hand.descend(first, batch, extra)
    automatic.descend(second, batch, extra)
    torch.testing.assert_close(first, second, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(first, w - 0.1 * (by_hand(w, batch) + extra), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(by_hand.logits(w[0], batch.x[0]), automatic.logits(w[0], batch.x[0]))


def test_by_hand_equals_finite_differences() -> None:
    network, batch = networks("mlp", {"widths": [3]}), make_batch(sizes=(4, 2))
    w = weights(network, 2)
    gradient = Dense(network, 0.1, 2)(w, batch).double()

    def losses(values: torch.Tensor) -> torch.Tensor:
        oracle = Dense(network, 0.1, 2)
        oracle(values, Batch(batch.x.double(), batch.y, batch.share.double(), batch.sizes))
        return oracle.mean_loss

    step = 1e-6
    for position in range(network.parameters):
        move = torch.zeros_like(w, dtype=torch.float64)
        move[:, position] = step
        slope = (losses(w.double() + move) - losses(w.double() - move)) / (2 * step)
        torch.testing.assert_close(gradient[:, position], slope, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("name", "shape"), [("cnn", (1, 20, 20)), ("cnn", (3, 18, 19))])
def test_convolutions_by_finite_differences(name: str, shape: tuple[int, ...]) -> None:
    network = networks(name, {"channels": [2, 2, 2], "width": 3}, shape)
    batch = make_batch(shape, sizes=(3,))
    w = network.initial()[None].clone()
    gradient = Automatic(network, 0.1)(w, batch)[0]
    direction = torch.randn(network.size, generator=torch.Generator().manual_seed(0))
    direction[network.parameters :] = 0

    def loss(values: torch.Tensor) -> float:
        oracle = Automatic(network, 0.1)
        return float(torch.nn.functional.cross_entropy(oracle.logits(values, batch.x[0]), batch.y[0]))

    step = 1e-3
    slope = (loss(w[0] + step * direction) - loss(w[0] - step * direction)) / (2 * step)
    assert float(gradient @ direction) == pytest.approx(slope, rel=0.05, abs=2e-3)


def test_parts_of_a_batch() -> None:
    batch = make_batch(sizes=(8, 5, 3))
    first, second = (batch.part(index, 2, at_least=4) for index in range(2))
    assert (first.sizes, second.sizes) == ((4, 2, 0), (4, 3, 0))
    torch.testing.assert_close(second.x[1, :3], batch.x[1, 2:5])
    assert first.share[2].sum() == 0
    torch.testing.assert_close(second.share.sum((1, 2)), torch.tensor([1.0, 1.0, 0.0]))


def test_plan_covers_every_sample_and_depends_on_the_name_alone() -> None:
    steps = plan(70, 32, 2, 0, "train", 3, "north")
    assert [len(step) for step in steps] == [32, 32, 6, 32, 32, 6]
    assert sorted(np.concatenate(steps[:3])) == sorted(np.concatenate(steps[3:])) == list(range(70))
    again = plan(70, 32, 2, 0, "train", 3, "north")
    np.testing.assert_array_equal(np.concatenate(steps), np.concatenate(again))
    for other in (plan(70, 32, 2, 0, "train", 4, "north"), plan(70, 32, 2, 0, "train", 3, "south")):
        assert not np.array_equal(np.concatenate(steps), np.concatenate(other))


def test_stack_shrinks_as_clients_finish() -> None:
    sizes = [7, 3, 2]
    x = [torch.arange(n, dtype=torch.float32)[:, None] for n in sizes]
    y = [torch.arange(n) for n in sizes]
    plans = [plan(n, 3, 1, 0, "train", 1, str(n)) for n in sizes]
    seen: list[list[int]] = [[], [], []]
    active = []
    for batch in stacked(x, y, plans):
        active.append(len(batch.sizes))
        for client, size in enumerate(batch.sizes):
            assert batch.x[client, :size, 0].tolist() == batch.y[client, :size].tolist()
            seen[client] += batch.y[client, :size].tolist()
    assert active == [3, 1, 1]
    assert [sorted(values) for values in seen] == [list(range(n)) for n in sizes]
