"""Label shift: P(y) differs between types, P(x | y) does not (Section 5.1 of the paper; Ma et al. 2022)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcollab.errors import InputError
from fedcollab.scenarios.data import Images
from fedcollab.scenarios.deal import Floats, total_variation
from fedcollab.scenarios.scenario import Scenario, make_clients
from fedcollab.scenarios.sizes import PerClient, Sizes, block_types, default_sizes, per_client

# One row a type, one column a label: .25 and .5 of each label's pool, that is 1 : 2 : 2 : 2.
PAPER_MIXES = (
    (1, 2, 2, 2, 0, 0, 0, 0, 0, 0),
    (0, 2, 2, 2, 1, 0, 0, 0, 0, 0),
    (0, 0, 0, 0, 0, 1, 2, 2, 2, 0),
    (0, 0, 0, 0, 0, 0, 2, 2, 2, 1),
)

SETTINGS = {
    "model": "mlp",
    "lr": 0.1,
    "rounds": 200,
    "batch_size": 32,
    "local_epochs": 1,
    "C": 10.0,
    "discriminator_lr": 0.01,
    "encoder": "none",
}

SIZES: dict[str, Sizes] = {
    # A client has 1/7 of its samples for testing; small ones keep e^-5 of the rest.
    "fashion-mnist": ((2100, 2100, 14, 14), 350),
    "cifar-10": ((1750, 1750, 14, 14), 294),
    "digits": ((42, 42, 14, 14), (17, 17, 45, 45)),
}


def label_shift(
    data: Images,
    *,
    seed: int = 0,
    iid: bool = False,
    clients: int = 20,
    mixes: Sequence[Sequence[float]] = PAPER_MIXES,
    quantity: PerClient | None = None,
    test: PerClient | None = None,
) -> Scenario:
    """Clients whose labels are mixed as the rows of `mixes` say (types x labels, any scale per row).

    quantity    training samples: one number, one per type or one per client
    test        test samples, likewise
    iid         labels drawn independently from the mix, instead of the mix rounded to whole samples
    """
    shares = check_mixes(mixes, len(data.classes))
    types = block_types(clients, len(shares))
    sizes, held = default_sizes(data.name, SIZES, quantity, test, kinds=len(shares))
    per_type = shares[types]
    return Scenario(
        "label-shift",
        make_clients(
            data,
            per_type,
            per_client("quantity", sizes, types, least=2),
            per_client("test", held, types, least=0),
            seed=seed,
            iid=iid,
            types=types,
        ),
        tuple(types.tolist()),
        total_variation(per_type),
        {**SETTINGS, "dataset": data.name, "classes": len(data.classes)},
        seed,
    )


def check_mixes(mixes: Sequence[Sequence[float]], classes: int) -> Floats:
    """Label mixes as an array whose rows sum to one."""
    try:
        array = np.array(mixes, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.ndim != 2 or array.shape[1] != classes or len(array) == 0:
        raise InputError(
            f"`mixes` has shape {array.shape}; expected one row a type with {classes} numbers, one a label"
        )
    if not np.isfinite(array).all() or (array < 0).any() or (array.sum(axis=1) <= 0).any():
        raise InputError("`mixes` must hold numbers of at least 0, and every row must have one above 0")
    shares: Floats = array / array.sum(axis=1, keepdims=True)
    return shares
