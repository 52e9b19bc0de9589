"""Made clients whose answer is known: one rule, two rules, one rule with other label shares."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from fedcollab.data import ClientData

Make = Callable[..., list[ClientData]]


def clients_of(rules: str, rows: int = 80, seed: int = 0, noise: float = 0.1, shift: float = 0.0) -> list[ClientData]:
    """Make clients: `rules[i]` is the direction that decides client i's labels."""
    rng = np.random.default_rng(seed)
    clients = []
    for position, rule in enumerate(rules):
        x = rng.normal(size=(rows + 200, 6))
        x[:, 5] += shift * position  # differs between clients, decides nothing
        direction = np.array([1.0, 1.0, 0, 0, 0, 0]) if rule == "a" else np.array([-1.0, 1.0, 1.0, 0, 0, 0])
        y = (x @ direction > 0).astype(int)
        y = np.where(rng.random(len(y)) < noise, 1 - y, y)
        table = pd.DataFrame(x, columns=["one", "two", "three", "four", "five", "scanner"])
        name = f"{['north', 'south', 'east', 'west', 'up', 'down', 'left', 'right'][position]}"
        clients.append(ClientData(name, table[:rows], y[:rows], table[rows:], y[rows:]))
    return clients


@pytest.fixture
def make_clients() -> Make:
    """Return a function that makes clients (see `clients_of`)."""
    return clients_of
