"""Clients whose samples are feature vectors: to train a head on a frozen encoder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fedcollab.data.client import ClientData
from fedcollab.errors import InputError
from fedcollab.federation.prepare import federate
from fedcollab.progress import Progress, silent
from fedcollab.wire import pick_device


def encode_clients(
    clients: Iterable[ClientData],
    encoder: Any = "efficientnet-lite0:block=final",
    *,
    scale: str = "auto",
    device: str = "auto",
    progress: Progress = silent,
) -> list[ClientData]:
    """The same clients with features in place of images, test splits included; each feature has mean 0 and spread 1.

    `train(encode_clients(clients), coalitions, model="logistic", ...)` trains a head on a frozen encoder. `scale` is
    that of `estimate_distances`.
    """
    listed = list(clients)
    device = pick_device(device)
    federation = federate(listed, scale=scale, device=device, encoder=encoder, progress=progress)
    schema = federation.schema
    assert schema is not None
    encoding = schema.encoding
    if encoding is None:
        raise InputError(f"`encoder` (={encoder!r}) must be an encoder, to encode with")

    def features(x: Any) -> Any:
        return None if x is None else encoding.apply(schema.features(x), device)

    return [
        ClientData(client.name, features(client.x), client.y, features(client.x_test), client.y_test)
        for client in listed
    ]
