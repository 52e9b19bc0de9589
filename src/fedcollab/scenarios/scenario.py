"""Scenario: clients made from a data set, with what is known about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedcollab.data.client import ClientData
from fedcollab.data.samples import is_table
from fedcollab.scenarios.data import Images
from fedcollab.scenarios.deal import Floats, Ints, count_table, deal
from fedcollab.scenarios.sizes import PerClient, per_client

Change = Callable[[Any, int], Any]  # (values, type) -> values


@dataclass(frozen=True, eq=False)
class Scenario:
    """Clients of planted types.

    Parameters
    ----------
    name : str
        Name of the scenario, one of `SCENARIOS`.
    clients : tuple of ClientData
        In order client-00, client-01, ...: numeric order is name order.
    types : tuple of int
        The planted type of each client.
    truth : array of shape (N, N) or None
        Total variation distances between the clients' distributions, where a closed form is known.
    settings : dict
        How the paper trains on this scenario: model, lr, rounds, batch_size, local_epochs, C, discriminator_lr,
        encoder, dataset, classes.
    seed : int
        The seed that decided which samples each client has.
    options : dict
        The options that the scenario was made with.
    """

    name: str
    clients: tuple[ClientData, ...]
    types: tuple[int, ...]
    truth: Floats | None
    settings: dict[str, Any]
    seed: int
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def scale(self) -> str:
        """The `scale` that `estimate_distances` and `train` need: "none" for images, which come normalised."""
        return "auto" if is_table(self.clients[0].x) else "none"

    def __repr__(self) -> str:
        sizes = sorted({client.quantity for client in self.clients}, reverse=True)
        shown = ", ".join(map(str, sizes[:4])) + (", ..." if len(sizes) > 4 else "")
        kinds = len(set(self.types))
        return (
            f"Scenario({self.name!r}, {len(self.clients)} clients of {kinds} types, {shown} samples, seed {self.seed})"
        )


def label_shares(data: Images) -> Floats:
    """Return the share of each label in a data set."""
    shares: Floats = np.bincount(data.labels, minlength=len(data.classes)) / len(data.labels)
    return shares


def make_scenario(
    name: str,
    data: Images,
    mixes: Floats,
    types: Ints,
    *,
    quantity: PerClient,
    test: PerClient,
    seed: int,
    iid: bool,
    truth: Floats | None,
    settings: dict[str, Any],
    images: Change | None = None,
    labels: Change | None = None,
) -> Scenario:
    """Deal the samples of a data set to clients by label mix, and change each type's images and labels.

    Parameters
    ----------
    name : str
        Name of the scenario.
    data : Images
        The data set.
    mixes : array of shape (clients, labels)
        The share of each label at each client.
    types : array of int
        The type of each client.
    quantity, test : int or sequence of int
        Training and test samples: one number for all clients, one per type or one per client.
    seed : int
        Decides which samples each client gets.
    iid : bool
        Whether labels are drawn independently from the mix, instead of the mix rounded to whole samples.
    truth : array of shape (clients, clients) or None
        The true distances, where they are known.
    settings : dict
        How to train on the scenario.
    images, labels : function of (values, type), optional
        What to do with the pixels (before they are normalised) and with the labels of a type.
    """
    dealt = deal(
        data.labels,
        count_table(per_client("quantity", quantity, types, least=2), mixes, iid=iid, seed=seed, use="train"),
        count_table(per_client("test", test, types, least=0), mixes, iid=iid, seed=seed, use="test"),
        seed=seed,
        reuse=iid,
    )
    digits = max(2, len(str(len(dealt) - 1)))

    def samples(index: Ints, kind: int) -> tuple[Any, Any]:
        y = data.labels[index] if labels is None else labels(data.labels[index], kind)
        if images is None:
            return data.normalised(index), y
        return data.normalise(images(data.pixels[index].astype(np.float32), kind)), y

    clients = tuple(
        ClientData(f"client-{at:0{digits}d}", *samples(own, kind), *(samples(held, kind) if len(held) else ()))
        for at, ((own, held), kind) in enumerate(zip(dealt, types.tolist(), strict=True))
    )
    settings = {**settings, "dataset": data.name, "classes": len(data.classes)}
    return Scenario(name, clients, tuple(types.tolist()), truth, settings, seed)
