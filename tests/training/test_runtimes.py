"""Vectorised equals wire, for every algorithm, with ragged client sizes: 66 steps against 1."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedcollab.data import ClientData
from fedcollab.training import ALGORITHMS, train


@pytest.mark.parametrize("algorithm", ["ditto", "fedadam", "fedavg", "fednova", "fedprox", "finetune", "local",
                                       "own-intercept", "own-weights", "perfedavg", "pfedme", "scaffold"])  # fmt: skip
def test_vectorised_equals_wire(ragged: list[ClientData], algorithm: str) -> None:
    weights = (np.eye(6) + np.arange(1, 7)) / 22 if algorithm == "own-weights" else None
    results = [
        train(ragged, [["a", "b"], ["c", "d", "e", "f"]], algorithm, rounds=3, lr=0.05, local_epochs=2,
              model_options={"widths": [8, 6]}, runtime=runtime, weights=weights)
        for runtime in ("vectorised", "wire")
    ]  # fmt: skip
    assert results[0].rounds == results[1].rounds
    for name, curve in results[0].held_out.items():
        np.testing.assert_allclose(curve, results[1].held_out[name], atol=1e-5)
    for which in results[0].models:
        np.testing.assert_allclose(results[0].models[which], results[1].models[which], atol=2e-6)
    np.testing.assert_allclose(results[0].accuracy, results[1].accuracy, atol=1e-6)
    np.testing.assert_allclose(results[0].loss, results[1].loss, atol=1e-5)


def test_every_algorithm_is_compared() -> None:
    mark = test_vectorised_equals_wire.pytestmark[0]
    builtin = {name for name, algorithm in ALGORITHMS.items() if algorithm.__module__.startswith("fedcollab.")}
    assert builtin == set(mark.args[1])


def test_threads_change_nothing_and_are_put_back(ragged: list[ClientData]) -> None:
    cores = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = train(ragged, "global", rounds=2, lr=0.1)
        torch.set_num_threads(2)
        two = train(ragged, "global", rounds=2, lr=0.1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(cores)
    np.testing.assert_allclose(one.models["last"], two.models["last"], atol=1e-6)
