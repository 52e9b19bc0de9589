"""Two clients: does the global or the local model do better, as distance and quantity grow? (Figure 1 of the paper.)

The paper gives no parameters. Chosen: Fashion-MNIST, and one of two shifts, with a total variation distance of exactly
d for every d in [0, 1].

"label": the labels are cut into a first and a second half, with mixes a and b spread evenly over each;

    client 0 has (1 + d)/2 a + (1 - d)/2 b,    client 1 has (1 - d)/2 a + (1 + d)/2 b:

at 0 both have all labels alike, at 1 they share none. Both can be served by one model if it has data enough.

"concept": both have the same images; labels 0 and 1, of which they have a share d together, have their names swapped
at client 1. No one model can be right for both on that share, however much data there is.

Figure 1(a) varies d at one quantity (`DISTANCES` at 400), Figure 1(b) the quantity at one distance (`QUANTITIES` at
`DISTANCE`), by concept shift: only there does more data make clients pickier for good.
"""

from __future__ import annotations

import numpy as np

from fedcollab.errors import InputError, number, unknown
from fedcollab.scenarios.data import Images
from fedcollab.scenarios.deal import Floats
from fedcollab.scenarios.label import SETTINGS
from fedcollab.scenarios.scenario import Scenario, make_clients
from fedcollab.scenarios.sizes import PerClient, per_client

DISTANCE = 0.1
DISTANCES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
SHIFTS = ("concept", "label")
QUANTITIES = (50, 100, 200, 400, 800, 1600, 3200)


def two_clients(
    data: Images,
    *,
    seed: int = 0,
    iid: bool = False,
    shift: str = "label",
    distance: float = 0.8,
    quantity: PerClient = 400,
    test: PerClient = 1000,
) -> Scenario:
    """Two clients at total variation distance `distance`, each with `quantity` training samples."""
    if shift not in SHIFTS:
        raise InputError(unknown("shift", shift, SHIFTS))
    far = number("distance", distance, at_least=0, at_most=1)
    types = np.arange(2)
    mixes = opposed(far, len(data.classes)) if shift == "label" else conflicting(far, len(data.classes))
    swapped = np.array([1, 0, *range(2, len(data.classes))])
    made = make_clients(
        data,
        mixes,
        per_client("quantity", quantity, types, least=2),
        per_client("test", test, types, least=0),
        seed=seed,
        iid=iid,
        types=types,
        labels=(lambda labels, kind: swapped[labels] if kind else labels) if shift == "concept" else None,
    )
    settings = {**SETTINGS, "dataset": data.name, "classes": len(data.classes)}
    return Scenario("two-client", made, (0, 1), far * (1 - np.eye(2)), settings, seed)


def opposed(distance: float, classes: int) -> Floats:
    """The two label mixes.

    >>> opposed(0.5, 4).tolist()
    [[0.375, 0.375, 0.125, 0.125], [0.125, 0.125, 0.375, 0.375]]
    """
    first = (np.arange(classes) < classes // 2).astype(np.float64)
    a, b = first / first.sum(), (1 - first) / (1 - first).sum()
    near, far = (1 + distance) / 2, (1 - distance) / 2
    return np.stack([near * a + far * b, far * a + near * b])


def conflicting(distance: float, classes: int) -> Floats:
    """One mix for both, with a share `distance` of the first two labels.

    >>> conflicting(0.5, 4).tolist()
    [[0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]]
    """
    mix = np.full(classes, (1 - distance) / (classes - 2))
    mix[:2] = distance / 2
    return np.stack([mix, mix])
