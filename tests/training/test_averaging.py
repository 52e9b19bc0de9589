"""The model that is used is a mean over rounds; training itself does not notice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedcollab.data import ClientData
from fedcollab.training import train

PLAIN: dict[str, Any] = {"model_options": {"widths": [6]}, "lr": 0.2, "stopping": "none"}


@pytest.mark.parametrize("algorithm", ["fedavg", "ditto", "own-intercept", "scaffold", "fedadam"])
@pytest.mark.parametrize("runtime", ["vectorised", "wire"])
def test_the_mean_by_hand(clients: list[ClientData], algorithm: str, runtime: str) -> None:
    """w_1, w_2, w_3 of three trainings that end after 1, 2 and 3 rounds; b_2 = min(.6, 1/2), b_3 = min(.6, 2/3)."""
    ends = [train(clients, "global", algorithm, rounds=rounds, averaging=0.0, **PLAIN) for rounds in (1, 2, 3)]
    found = train(clients, "global", algorithm, rounds=3, averaging=0.6, runtime=runtime, **PLAIN)
    for which, rows in found.models.items():
        one, two, three = (result.models[which] for result in ends)
        mean = 0.6 * (0.5 * one + 0.5 * two) + 0.4 * three
        np.testing.assert_allclose(rows, mean, atol=2e-6)
    trained = [[row["train_loss"] for row in result.history] for result in (found, ends[-1])]
    np.testing.assert_allclose(*trained, atol=1e-6)


def test_the_mean_is_steadier_than_the_last_round(clients: list[ClientData]) -> None:
    """With steps that are too large single rounds go up and down; their mean does so less."""
    options: dict[str, Any] = {**PLAIN, "lr": 1.5, "batch_size": 4, "rounds": 30, "evaluate_every": 1}
    rough, even = (train(clients, "global", averaging=averaging, **options) for averaging in (0.0, 0.8))
    jumps = [np.abs(np.diff(result.history.curve("loss")[1][10:])).mean() for result in (rough, even)]
    assert jumps[1] < jumps[0] / 2
