"""Scenario: clients made from a data set, with what is known about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedcollab.data.client import ClientData
from fedcollab.scenarios.data import Images
from fedcollab.scenarios.deal import Floats, Ints, count_table, deal

Change = Callable[[Any, int], Any]  # (values, type) -> values


@dataclass(frozen=True, eq=False)
class Scenario:
    """Clients of planted types.

    clients     in order client-00, client-01, ...: numeric order is name order
    types       the planted type of each client
    truth       total variation distances between the clients' distributions where a closed form is known, else None
    settings    how the paper trains on this scenario: model, lr, rounds, batch_size, local_epochs, C, discriminator_lr,
                encoder, dataset, classes
    options     the options that it was made with
    """

    name: str
    clients: tuple[ClientData, ...]
    types: tuple[int, ...]
    truth: Floats | None
    settings: dict[str, Any]
    seed: int
    options: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def from_toml(path: str | Path) -> Scenario:
        """Make the scenario that a TOML file describes."""
        from fedcollab.scenarios.file import load

        return load(path)

    def __repr__(self) -> str:
        sizes = sorted({client.quantity for client in self.clients}, reverse=True)
        shown = ", ".join(map(str, sizes[:4])) + (", ..." if len(sizes) > 4 else "")
        kinds = len(set(self.types))
        return (
            f"Scenario({self.name!r}, {len(self.clients)} clients of {kinds} types, {shown} samples, seed {self.seed})"
        )


def label_shares(data: Images) -> Floats:
    """The share of each label in a data set."""
    shares: Floats = np.bincount(data.labels, minlength=len(data.classes)) / len(data.labels)
    return shares


def make_clients(
    data: Images,
    mixes: Floats,
    quantity: Ints,
    test: Ints,
    *,
    seed: int,
    iid: bool,
    types: Ints,
    images: Change | None = None,
    labels: Change | None = None,
) -> tuple[ClientData, ...]:
    """Deal samples by label mix, change each type's images and labels, and normalise."""
    hands = deal(
        data.labels,
        count_table(quantity, mixes, iid=iid, seed=seed, use="train"),
        count_table(test, mixes, iid=iid, seed=seed, use="test"),
        seed=seed,
        reuse=iid,
    )
    digits = max(2, len(str(len(hands) - 1)))

    def features(index: Ints, kind: int) -> Any:
        if images is None:
            return data.normalised(index)
        return data.normalise(images(data.pixels[index].astype(np.float32), kind))

    def targets(index: Ints, kind: int) -> Any:
        return data.labels[index] if labels is None else labels(data.labels[index], kind)

    return tuple(
        ClientData(
            f"client-{client:0{digits}d}",
            features(own, kind),
            targets(own, kind),
            features(held, kind) if len(held) else None,
            targets(held, kind) if len(held) else None,
        )
        for client, ((own, held), kind) in enumerate(zip(hands, types.tolist(), strict=True))
    )
