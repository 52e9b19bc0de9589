"""Label shift: P(y) differs between types, P(x | y) does not (Section 5.1 of the paper; Ma et al. 2022)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcollab.errors import InputError
from fedcollab.scenarios.data import Images
from fedcollab.scenarios.deal import Floats, label_distances
from fedcollab.scenarios.scenario import Scenario, make_scenario
from fedcollab.scenarios.sizes import PerClient, Sizes, block_types, default_sizes

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
    """Make clients whose labels are mixed as the rows of `mixes` say.

    Parameters
    ----------
    data : Images
        The data set to deal samples from.
    seed : int
        Decides which samples each client gets.
    iid : bool
        Whether labels are drawn independently from the mix, instead of the mix rounded to whole samples.
    clients : int
        How many clients, in equal blocks of each type.
    mixes : sequence of rows
        The share of each label, one row a type, on any scale.
    quantity, test : int or sequence of int, optional
        Training and test samples: one number, one per type or one per client. The data set's usual sizes by default.

    Raises
    ------
    InputError
        If the mixes do not fit the data set, or it has too few samples of a label.
    """
    shares = check_mixes(mixes, len(data.classes))
    types = block_types(clients, len(shares))
    sizes, held = default_sizes(data.name, SIZES, quantity, test, kinds=len(shares))
    return make_scenario(
        "label-shift",
        data,
        shares[types],
        types,
        quantity=sizes,
        test=held,
        seed=seed,
        iid=iid,
        truth=label_distances(shares[types]),
        settings=SETTINGS,
    )


def check_mixes(mixes: Sequence[Sequence[float]], classes: int) -> Floats:
    """Return label mixes as an array whose rows sum to one; a bad one raises `InputError`."""
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
