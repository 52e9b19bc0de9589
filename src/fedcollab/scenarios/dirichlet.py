"""Dirichlet label skew: every client has a label mix of its own, q_i ~ Dirichlet(alpha L p) (Hsu et al. 2019)."""

from __future__ import annotations

import numpy as np

from fedcollab.errors import number
from fedcollab.scenarios.data import Images
from fedcollab.scenarios.deal import Floats, Ints, total_variation
from fedcollab.scenarios.label import SETTINGS
from fedcollab.scenarios.scenario import Scenario, label_shares, make_clients
from fedcollab.scenarios.sizes import PerClient, per_client
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
    """Clients with label mixes q_i ~ Dirichlet(alpha L p), p the pool's label shares and L the number of labels.

    alpha           concentration per label: small is skewed, infinity is the pool's own mix
    quantity_skew   sigma of log-normal quantities m_i = quantity exp(sigma z_i - sigma^2 / 2), at least 2; 0: as given

    Every client is a type of its own. The mixes do not depend on the quantities, so that one seed compares both.
    """
    count = int(number("clients", clients, at_least=1, whole=True))
    alpha = number("alpha", alpha, above=0)
    skew = number("quantity_skew", quantity_skew, at_least=0)
    types = np.arange(count)
    mixes = draw_mixes(label_shares(data), alpha, count, seed)
    sizes = skewed(per_client("quantity", quantity, types, least=2), skew, seed)
    made = make_clients(data, mixes, sizes, per_client("test", test, types, least=0), seed=seed, iid=iid, types=types)
    settings = {**SETTINGS, "dataset": data.name, "classes": len(data.classes)}
    return Scenario("dirichlet", made, tuple(types.tolist()), total_variation(mixes), settings, seed)


def draw_mixes(shares: Floats, alpha: float, clients: int, seed: int) -> Floats:
    """One label mix a client; client i's does not depend on how many others there are."""
    width = len(shares)
    present = np.flatnonzero(shares)
    mixes = np.zeros((clients, width))
    for client in range(clients):
        drawn = generator(seed, "scenario", "dirichlet", client).dirichlet(alpha * width * shares[present])
        mixes[client, present] = drawn if drawn.sum() > 0.5 else shares[present]
    return mixes


def skewed(quantities: Ints, sigma: float, seed: int) -> Ints:
    """Quantities times a log-normal factor of mean 1."""
    factors = np.array(
        [
            np.exp(sigma * generator(seed, "scenario", "quantity", client).standard_normal() - sigma**2 / 2)
            for client in range(len(quantities))
        ]
    )
    changed: Ints = np.maximum(2, np.round(quantities * factors)).astype(np.int64)
    return changed
