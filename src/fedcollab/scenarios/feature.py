"""Feature shift: the images of each type are rotated by its own angle (Section 5.1 of the paper; Ghosh et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcollab.errors import InputError, number
from fedcollab.scenarios import label
from fedcollab.scenarios.data import Images
from fedcollab.scenarios.rotate import rotate
from fedcollab.scenarios.scenario import Scenario, label_shares, make_scenario
from fedcollab.scenarios.sizes import PerClient, Sizes, block_types, default_sizes

PAPER_ANGLES = (25.0, -25.0, 155.0, -155.0)

SETTINGS = {
    **label.SETTINGS,
    "model": "cnn",
    "lr": 0.01,
    "rounds": 500,
    "encoder": "efficientnet-lite0",  # the paper: ResNet-18
}

SIZES: dict[str, Sizes] = {  # small clients keep e^-2 of their training samples, rounded per label
    "cifar-10": ((2500, 2500, 340, 340), 500),
    "fashion-mnist": ((2100, 2100, 280, 280), 350),
    "digits": ((100, 100, 20, 20), 20),
}


def feature_shift(
    data: Images,
    *,
    seed: int = 0,
    iid: bool = False,
    clients: int = 20,
    angles: Sequence[float] = PAPER_ANGLES,
    quantity: PerClient | None = None,
    test: PerClient | None = None,
) -> Scenario:
    """Make clients with the pool's label shares, whose images are turned by the angle of their type.

    The distances between rotated distributions have no closed form: `truth` is None.

    Parameters
    ----------
    data, seed, iid, clients, quantity, test
        As in `label.label_shift`, the mix being the pool's label shares.
    angles : sequence of float
        Degrees counter-clockwise, one a type.
    """
    if not isinstance(angles, (list, tuple, np.ndarray)) or len(angles) == 0:
        raise InputError(f"`angles` (={angles!r}) must be a list of degrees, one a type")
    turns = [number("angles", angle) for angle in angles]
    types = block_types(clients, len(turns))
    sizes, held = default_sizes(data.name, SIZES, quantity, test, kinds=len(turns))
    return make_scenario(
        "feature-shift",
        data,
        np.tile(label_shares(data), (len(types), 1)),
        types,
        quantity=sizes,
        test=held,
        seed=seed,
        iid=iid,
        truth=None,
        settings=SETTINGS if data.pixels.shape[1] == 3 else label.SETTINGS,
        images=lambda pixels, kind: rotate(pixels, turns[kind]),
    )
