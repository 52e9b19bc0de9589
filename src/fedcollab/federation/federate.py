"""The one way from clients to a `Federation`: agree on a schema, or adopt one, and have every client apply it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fedcollab.data.client import ClientData, list_clients
from fedcollab.data.schema import Schema
from fedcollab.errors import InputError
from fedcollab.federation.adopt import adopt
from fedcollab.federation.encode import with_encoder
from fedcollab.federation.federation import Federation
from fedcollab.federation.fingerprint import fingerprint  # noqa: F401  (declared wherever there is a federation)
from fedcollab.federation.prepare import agree, hand_out
from fedcollab.federation.present import Present
from fedcollab.progress import Progress, silent
from fedcollab.wire import Vectorised, Wire, open_runtime, pick_device
from fedcollab.wire.message import Message
from fedcollab.wire.runtime import Runtime

Clients = Iterable[ClientData] | Mapping[str, Any] | Runtime | Federation


def federate(
    clients: Clients,
    *,
    runtime: str | None = None,
    device: str | None = None,
    scale: str | None = None,
    missing_indicators: bool | None = None,
    test_share: float | None = None,
    seed: int = 0,
    encoder: Any = None,
    schema: Schema | None = None,
    task: str | None = None,
    progress: Progress = silent,
) -> Federation:
    """Return these clients as a federation: agree on a schema, or adopt one, and have every client apply it.

    Parameters
    ----------
    clients : iterable of ClientData, mapping, Runtime or Federation
        The clients; in a mapping each name stands for a `ClientData` or for features and labels `(x, y)`. A federation
        is returned as it is (with the encoder, if one is given).
    runtime : str, optional
        Where the client side runs: "vectorised" (default), "wire", "flower-simulation".
    device : str, optional
        Where models run: "auto" (default; the GPU where there is one), "cpu", "cuda".
    scale : str, optional
        How arrays are scaled: "features", "channels", "none" or "auto" (default).
    missing_indicators : bool, optional
        Whether tables get one more feature a column, which says whether the value is missing (default: no).
    test_share : float, optional
        Hold-out share of clients without a test split (default .2).
    seed : int
        The hold-out is drawn from it; a federation, or a schema that is given, keeps its own.
    encoder : str, torch.nn.Module, callable or None
        Frozen encoder through which distances see samples; "none" takes a federation's own away.
    schema : Schema, optional
        A schema that was agreed on earlier, to adopt instead of agreeing on a new one.
    task : str, optional
        What models predict: "classification", "regression" or "auto" (default; numbers with fractions mean regression).
    progress : callable
        Called with (samples encoded, samples).

    Returns
    -------
    Federation
        The clients that answered, prepared.

    Raises
    ------
    InputError
        If the clients' data do not fit together or do not fit `schema`, or if a federation is given together with
        settings that were decided when it was prepared.
    Paused
        If too few clients answered.
    """
    settled = {"scale": scale, "missing_indicators": missing_indicators, "test_share": test_share, "task": task}
    if not isinstance(clients, Iterable):
        _refuse_given({"runtime": runtime, "device": device}, "runtime that exists")
    if isinstance(clients, Federation):
        _refuse_given({**settled, "schema": schema}, "federation that is prepared")
        present = Present(clients.runtime, clients.names, dict(clients.left_out))
        return _encoded(present, clients.described, clients.schema, encoder, progress)
    if schema is not None:
        _refuse_given(settled, "schema that was agreed on earlier")
    carrier = (
        clients
        if isinstance(clients, Runtime)
        else open_runtime(list_clients(clients), runtime or "vectorised", device or "auto")
    )
    present = Present(carrier, carrier.names, dict(carrier.missing))
    if schema is None:
        described, schema = agree(
            present,
            "auto" if scale is None else scale,
            bool(missing_indicators),
            0.2 if test_share is None else test_share,
            seed,
            task or "auto",
        )
    else:
        described = adopt(present, schema)
    present.leave_out(hand_out(present.runtime, present.names, schema, described))
    return _encoded(present, described, schema, encoder, progress)


def with_client(federation: Federation, client: ClientData) -> Federation:
    """Return a federation of the clients of this one and a newcomer, with the same schema.

    Parameters
    ----------
    federation : Federation
        A federation that runs in this process.
    client : ClientData
        The newcomer.

    Returns
    -------
    Federation
        The new federation; the old one stays as it is.

    Raises
    ------
    InputError
        If the federation does not run in this process, or has a client of that name.
    """
    runtime = federation.runtime
    if not isinstance(runtime, (Vectorised, Wire)):
        raise InputError(
            f"`federation` runs on {type(runtime).__name__}; a client's data can be added only to one that runs in "
            "this process (vectorised, wire)"
        )
    if client.name in federation.names:
        raise InputError(f"`client` (={client.name!r}) must have a name of its own; the run has one with that name")
    return federate(type(runtime)([*runtime.clients, client], device=runtime.device), schema=federation.schema)


def encode_clients(
    clients: Iterable[ClientData],
    encoder: Any = "efficientnet-lite0:block=final",
    *,
    scale: str = "auto",
    device: str = "auto",
    progress: Progress = silent,
) -> list[ClientData]:
    """Return the same clients with features in place of images, each of mean 0 and deviation 1, test splits included.

    `train(encode_clients(clients), coalitions, model="logistic", ...)` trains a head on a frozen encoder.

    Parameters
    ----------
    clients : iterable of ClientData
        Clients with images.
    encoder : str, torch.nn.Module or callable
        The encoder.
    scale, device : str
        As in `federate`.
    progress : callable
        Called with (samples encoded, samples).

    Returns
    -------
    list of ClientData
        The clients, in the same order.

    Raises
    ------
    InputError
        If `encoder` is no encoder, or the clients have tables.
    """
    listed = list_clients(clients)
    device = pick_device(device)
    schema = federate(listed, scale=scale, device=device, encoder=encoder, progress=progress).schema
    encoding = schema.encoding
    if encoding is None:
        raise InputError(f"`encoder` (={encoder!r}) must be an encoder, to encode with")

    def features(x: Any) -> Any:
        return None if x is None else encoding.apply(schema.features(x), device)

    return [
        ClientData(client.name, features(client.x), client.y, features(client.x_test), client.y_test, client.groups)
        for client in listed
    ]


def _encoded(present: Present, described: Any, schema: Schema, encoder: Any, progress: Progress) -> Federation:
    """Return the federation of the clients present, with the encoder if one is given."""
    if encoder is not None:
        present.leave_out(hand_out(present.runtime, present.names, schema, described))
        schema = with_encoder(present, described, schema, encoder, progress)
        present.leave_out(hand_out(present.runtime, present.names, schema, described))
    known: dict[str, Message] = {name: described[name] for name in present.names}
    return Federation(present.runtime, schema, known, present.left_out)


def _refuse_given(settings: dict[str, Any], what: str) -> None:
    for key, value in settings.items():
        if value is not None:
            raise InputError(f"`{key}` (={value!r}) cannot be given with a {what}")
