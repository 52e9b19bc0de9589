"""Two clients: does the global or the local model do better, as distance and quantity grow? (Figure 1 of the paper.)

The paper gives no parameters. Chosen: Fashion-MNIST, and one of two shifts, with a total variation distance of exactly
d for every d in [0, 1].

"label": the labels are cut into a first and a second half, with mixes a and b spread evenly over each;

    client 0 has (1 + d)/2 a + (1 - d)/2 b,    client 1 has (1 - d)/2 a + (1 + d)/2 b:

at 0 both have all labels alike, at 1 they share none. Both can be served by one model if it has data enough.

"concept": both have the same images; labels 0 and 1, of which they have a share d together, have their names swapped
at client 1. No one model can be right for both on that share, however much data there is.
"""

from __future__ import annotations

import numpy as np

from fedcollab.errors import InputError, number, unknown
from fedcollab.scenarios.data import Images
from fedcollab.scenarios.deal import Floats
from fedcollab.scenarios.label import SETTINGS
from fedcollab.scenarios.scenario import Scenario, make_scenario
from fedcollab.scenarios.sizes import PerClient

SHIFTS = ("concept", "label")


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
    """Make two clients at total variation distance `distance`.

    Parameters
    ----------
    data : Images
        The data set to deal samples from.
    seed : int
        Decides which samples each client gets.
    iid : bool
        Whether labels are drawn independently from the mix, instead of the mix rounded to whole samples.
    shift : {"label", "concept"}
        What differs between the clients.
    distance : float
        Their total variation distance, from 0 to 1.
    quantity, test : int or sequence of int
        Training and test samples: one number for both clients or one each.
    """
    if shift not in SHIFTS:
        raise InputError(unknown("shift", shift, SHIFTS))
    far = number("distance", distance, at_least=0, at_most=1)
    swapped = np.array([1, 0, *range(2, len(data.classes))])
    return make_scenario(
        "two-client",
        data,
        opposed(far, len(data.classes)) if shift == "label" else conflicting(far, len(data.classes)),
        np.arange(2),
        quantity=quantity,
        test=test,
        seed=seed,
        iid=iid,
        truth=far * (1 - np.eye(2)),
        settings=SETTINGS,
        labels=(lambda labels, kind: swapped[labels] if kind else labels) if shift == "concept" else None,
    )


def opposed(distance: float, classes: int) -> Floats:
    """Return the label mixes of the two clients under label shift.

    >>> opposed(0.5, 4).tolist()
    [[0.375, 0.375, 0.125, 0.125], [0.125, 0.125, 0.375, 0.375]]
    """
    first = (np.arange(classes) < classes // 2).astype(np.float64)
    a, b = first / first.sum(), (1 - first) / (1 - first).sum()
    near, far = (1 + distance) / 2, (1 - distance) / 2
    return np.stack([near * a + far * b, far * a + near * b])


def conflicting(distance: float, classes: int) -> Floats:
    """Return the label mix of both clients under concept shift: a share `distance` of the first two labels.

    >>> conflicting(0.5, 4).tolist()
    [[0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]]
    """
    mix = np.full(classes, (1 - distance) / (classes - 2))
    mix[:2] = distance / 2
    return np.stack([mix, mix])
