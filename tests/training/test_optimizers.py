"""Adam and weight decay: each held against PyTorch's own optimizers or a hand-written step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedcollab.data import ClientData
from fedcollab.training import train

PLAIN: dict[str, Any] = {"model": "logistic", "batch_size": 1000, "scale": "none", "stopping": "none"}


@pytest.fixture(scope="module")
def pair() -> list[ClientData]:
    rng = np.random.default_rng(1)
    return [ClientData(name, x := rng.normal(size=(30, 3)), (x[:, 0] > 0).astype(int), x, (x[:, 0] > 0).astype(int))
            for name in "ab"]  # fmt: skip


def by_torch(client: ClientData, start: Any, steps: int, make: Any) -> Any:
    """Full-batch steps of a PyTorch optimizer on logistic regression from the given weights."""
    module = nn.Linear(3, 2)
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(start[:6].reshape(2, 3)))
        module.bias.copy_(torch.from_numpy(start[6:8]))
    optimizer = make(module.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(
            module(torch.tensor(client.x, dtype=torch.float32)), torch.tensor(client.y)
        ).backward()
        optimizer.step()
    return torch.cat([module.weight.detach().reshape(-1), module.bias.detach()]).numpy()


@pytest.mark.parametrize("runtime", ["vectorised", "wire"])
def test_adam_is_that_of_pytorch(pair: list[ClientData], runtime: str) -> None:
    start = train(pair, "local", rounds=1, lr=1e-12, **PLAIN).models["last"]
    found = train(pair, "local", rounds=1, local_epochs=7, lr=0.05, optimizer="adam", runtime=runtime, **PLAIN)
    for row, client, first in zip(found.models["last"], pair, start, strict=True):
        expected = by_torch(client, first, 7, lambda p: torch.optim.Adam(p, lr=0.05))
        np.testing.assert_allclose(row, expected, atol=2e-5)


def test_adam_for_any_module_equals_adam_for_known_layers(pair: list[ClientData]) -> None:
    def twin(shape: Any, classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(3, classes))

    same = {key: value for key, value in PLAIN.items() if key != "model"} | {"lr": 0.05, "optimizer": "adam"}
    known = train(pair, "global", model="logistic", rounds=2, local_epochs=3, **same)
    other = train(pair, "global", model=twin, rounds=2, local_epochs=3, **same)
    np.testing.assert_allclose(known.models["last"], other.models["last"], atol=1e-5)


def test_weight_decay_shrinks_after_each_step(pair: list[ClientData]) -> None:
    start = train(pair, "local", rounds=1, lr=1e-12, **PLAIN).models["last"]
    plain = train(pair, "local", rounds=1, lr=0.2, **PLAIN).models["last"]
    decayed = train(pair, "local", rounds=1, lr=0.2, weight_decay=0.5, **PLAIN).models["last"]
    np.testing.assert_allclose(decayed, plain * (1 - 0.2 * 0.5), atol=1e-6)
    assert not np.allclose(plain, start)
