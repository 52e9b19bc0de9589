"""Two clients: does the global or the local model do better, as distance and quantity grow? (Figure 1 of the paper.)

The paper gives no parameters. Chosen: both clients have `quantity` samples with the pool's label shares; client 1 names
`distance` of the labels differently (the first k = distance x L labels are shifted round by one), so that the total
variation distance is k / L and both have equally hard tasks alone. Figure 1(a) varies the distance at a quantity,
Figure 1(b) the quantity at a distance.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedcollab.errors import InputError, number
from fedcollab.scenarios.concept import concept_shift
from fedcollab.scenarios.data import Images
from fedcollab.scenarios.deal import Ints
from fedcollab.scenarios.scenario import Scenario
from fedcollab.scenarios.sizes import PerClient

DISTANCES = (0.0, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
QUANTITIES = (50, 100, 200, 400, 800, 1600, 3200)


def two_clients(
    data: Images,
    *,
    seed: int = 0,
    iid: bool = False,
    distance: float = 0.2,
    quantity: PerClient = 200,
    test: PerClient = 1000,
) -> Scenario:
    """Two clients at a total variation distance k / L (k = 0, 2, 3, ..., L labels named differently)."""
    made = concept_shift(
        data,
        seed=seed,
        iid=iid,
        clients=2,
        permutations=shifted(distance, len(data.classes)).tolist(),
        quantity=quantity,
        test=test,
    )
    return replace(made, name="two-client", settings={**made.settings, "C": 10.0})


def shifted(distance: float, classes: int) -> Ints:
    """The identity, and the permutation that shifts the first k = distance x classes labels round by one.

    >>> shifted(0.4, 5).tolist()
    [[0, 1, 2, 3, 4], [1, 0, 2, 3, 4]]
    """
    distance = number("distance", distance, at_least=0, at_most=1)
    k = round(distance * classes)
    if abs(k - distance * classes) > 1e-6 or k == 1:
        steps = ", ".join(f"{step / classes:g}" for step in range(classes + 1) if step != 1)
        raise InputError(f"`distance` (={distance:g}) must be a share of whole labels, other than one alone: {steps}")
    same = np.arange(classes)
    return np.stack([same, np.where(same < k, (same + 1) % max(k, 1), same)])
