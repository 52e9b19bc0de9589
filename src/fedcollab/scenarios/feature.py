"""Feature shift: the images of each type are rotated by its own angle (Section 5.1 of the paper; Ghosh et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcollab.errors import InputError, number
from fedcollab.scenarios import label
from fedcollab.scenarios.data import Images
from fedcollab.scenarios.rotate import rotate
from fedcollab.scenarios.scenario import Scenario, label_shares, make_clients
from fedcollab.scenarios.sizes import PerClient, Sizes, block_types, default_sizes, per_client

PAPER_ANGLES = (25.0, -25.0, 155.0, -155.0)

SETTINGS = {
    "model": "cnn",
    "lr": 0.01,
    "rounds": 500,
    "batch_size": 32,
    "local_epochs": 1,
    "C": 10.0,
    "discriminator_lr": 0.01,
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
    """Clients with the pool's label shares, whose images are turned by the angle of their type (degrees).

    The distances between rotated distributions have no closed form: `truth` is None.
    """
    if not isinstance(angles, (list, tuple, np.ndarray)) or len(angles) == 0:
        raise InputError(f"`angles` (={angles!r}) must be a list of degrees, one a type")
    turns = [number("angles", angle) for angle in angles]
    types = block_types(clients, len(turns))
    sizes, held = default_sizes(data.name, SIZES, quantity, test, kinds=len(turns))
    made = make_clients(
        data,
        np.tile(label_shares(data), (len(types), 1)),
        per_client("quantity", sizes, types, least=2),
        per_client("test", held, types, least=0),
        seed=seed,
        iid=iid,
        types=types,
        images=lambda pixels, kind: rotate(pixels, turns[kind]),
    )
    usual = SETTINGS if data.pixels.shape[1] == 3 else label.SETTINGS
    settings = {**usual, "dataset": data.name, "classes": len(data.classes)}
    return Scenario("feature-shift", made, tuple(types.tolist()), None, settings, seed)
