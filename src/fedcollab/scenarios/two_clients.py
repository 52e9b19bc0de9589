"""Two clients: does the global or the local model do better, as distance and quantity grow? (Figure 1 of the paper.)

The paper gives no parameters. Chosen: label shift on Fashion-MNIST. The labels are cut into a first and a second half,
with mixes a and b spread evenly over each; at distance d

    client 0 has (1 + d)/2 a + (1 - d)/2 b,    client 1 has (1 - d)/2 a + (1 + d)/2 b,

so that the total variation distance is exactly d for every d in [0, 1]: at 0 both have all labels alike, at 1 they
share none, and the two have mirrored parts. Figure 1(a) varies d at one quantity (`DISTANCES` at 400), Figure 1(b) the
quantity at one distance (`QUANTITIES` at 0.8).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedcollab.errors import number
from fedcollab.scenarios.data import Images
from fedcollab.scenarios.deal import Floats
from fedcollab.scenarios.label import label_shift
from fedcollab.scenarios.scenario import Scenario
from fedcollab.scenarios.sizes import PerClient

DISTANCES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)
QUANTITIES = (50, 100, 200, 400, 800, 1600, 3200)


def two_clients(
    data: Images,
    *,
    seed: int = 0,
    iid: bool = False,
    distance: float = 0.8,
    quantity: PerClient = 400,
    test: PerClient = 1000,
) -> Scenario:
    """Two clients at total variation distance `distance`, each with `quantity` training samples."""
    mixes = opposed(number("distance", distance, at_least=0, at_most=1), len(data.classes))
    made = label_shift(data, seed=seed, iid=iid, clients=2, mixes=mixes.tolist(), quantity=quantity, test=test)
    return replace(made, name="two-client")


def opposed(distance: float, classes: int) -> Floats:
    """The two label mixes.

    >>> opposed(0.5, 4).tolist()
    [[0.375, 0.375, 0.125, 0.125], [0.125, 0.125, 0.375, 0.375]]
    """
    first = (np.arange(classes) < classes // 2).astype(np.float64)
    a, b = first / first.sum(), (1 - first) / (1 - first).sum()
    near, far = (1 + distance) / 2, (1 - distance) / 2
    return np.stack([near * a + far * b, far * a + near * b])
