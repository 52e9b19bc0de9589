"""What the tests of training share: clients of very different sizes."""

from __future__ import annotations

import numpy as np
import pytest

from fedcollab.data import ClientData


@pytest.fixture(scope="session")
def ragged() -> list[ClientData]:
    """Six clients with 66, 1, 2, 2, 1, 1 batches of 32; the last three have the labels swapped."""
    made = []
    for index, (name, size) in enumerate({"a": 2100, "b": 14, "c": 33, "d": 64, "e": 7, "f": 3}.items()):
        rng = np.random.default_rng(index)
        y = np.arange(size + 30) % 2
        x = rng.normal(0, 1, (size + 30, 4)) + np.outer(2 * y - 1, [1.5, 0, 0, 0])
        y = 1 - y if index > 2 else y
        made.append(ClientData(name, x[:size], y[:size], x[size:], y[size:]))
    return made
