"""Dirichlet label skew: every client has a label mix of its own, q_i ~ Dirichlet(alpha L p) (Hsu et al. 2019)."""

from __future__ import annotations

import numpy as np

from fedcollab.errors import number
from fedcollab.scenarios.data import Images
from fedcollab.scenarios.deal import Floats, Ints, label_distances
from fedcollab.scenarios.label import SETTINGS
from fedcollab.scenarios.scenario import Scenario, label_shares, make_scenario
from fedcollab.scenarios.sizes import MOST_CLIENTS, PerClient, per_client
from fedcollab.seeds import generator


def dirichlet(
    data: Images,
    *,
    seed: int = 0,
    iid: bool = False,
    clients: int = 20,
    alpha: float = 0.5,
    quantity: PerClient = 300,
    quantity_skew: float = 0.0,
    test: PerClient = 100,
) -> Scenario:
    """Make clients with label mixes q_i ~ Dirichlet(alpha L p), p the pool's label shares and L the number of labels.

    Every client is a type of its own. The mixes do not depend on the quantities, so that one seed compares both.

    Parameters
    ----------
    data : Images
        The data set to deal samples from.
    seed : int
        Decides the mixes, the quantities and which samples each client gets.
    iid : bool
        Whether labels are drawn independently from the mix, instead of the mix rounded to whole samples.
    clients : int
        How many clients.
    alpha : float
        Concentration per label: small is skewed, infinity is the pool's own mix.
    quantity, test : int or sequence of int
        Training and test samples: one number for all clients or one per client.
    quantity_skew : float
        sigma of log-normal quantities m_i = quantity exp(sigma z_i - sigma^2 / 2), at least 2; 0 leaves `quantity`.
    """
    types = np.arange(int(number("clients", clients, at_least=1, at_most=MOST_CLIENTS, whole=True)))
    mixes = draw_mixes(label_shares(data), number("alpha", alpha, above=0), len(types), seed)
    skew = number("quantity_skew", quantity_skew, at_least=0)
    sizes = skewed(per_client("quantity", quantity, types, least=2), skew, seed)
    return make_scenario(
        "dirichlet",
        data,
        mixes,
        types,
        quantity=sizes.tolist(),
        test=test,
        seed=seed,
        iid=iid,
        truth=label_distances(mixes),
        settings=SETTINGS,
    )


def draw_mixes(shares: Floats, alpha: float, clients: int, seed: int) -> Floats:
    """Draw one label mix a client; client i's does not depend on how many others there are.

    Parameters
    ----------
    shares : array
        The share of each label in the pool.
    alpha : float
        Concentration per label.
    clients : int
        How many mixes to draw.
    seed : int
        Each mix is drawn from the seed and the client's number.

    Returns
    -------
    array of shape (clients, labels)
    """
    width = len(shares)
    present = np.flatnonzero(shares)
    mixes = np.zeros((clients, width))
    for client in range(clients):
        drawn = generator(seed, "scenario", "dirichlet", client).dirichlet(alpha * width * shares[present])
        mixes[client, present] = drawn if drawn.sum() > 0.5 else shares[present]
    return mixes


def skewed(quantities: Ints, sigma: float, seed: int) -> Ints:
    """Multiply `quantities` by log-normal factors of mean 1 and spread `sigma`, drawn from the `seed`."""
    factors = np.array(
        [
            np.exp(sigma * generator(seed, "scenario", "quantity", client).standard_normal() - sigma**2 / 2)
            for client in range(len(quantities))
        ]
    )
    changed: Ints = np.maximum(2, np.round(quantities * factors)).astype(np.int64)
    return changed
