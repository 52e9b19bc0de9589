"""Agreeing on a frozen encoder: every client must have the same one, and its features are scaled over all clients.

z = (phi(x) - mean) / std        mean and std of each feature, over the federation's training samples
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from fedcollab import encoders
from fedcollab.data.rare import squares_about
from fedcollab.data.schema import Schema
from fedcollab.encoders.encoding import Encoding
from fedcollab.errors import InputError
from fedcollab.federation.present import Moments, Present, deviation, total
from fedcollab.progress import Progress
from fedcollab.silo.rounding import summable
from fedcollab.wire.action import Release, Step, action, free, require_samples
from fedcollab.wire.fields import Label, Sides
from fedcollab.wire.limits import Limits
from fedcollab.wire.message import Message
from fedcollab.wire.silo import Silo

Floats = NDArray[np.float64]


class EncodeMessage(TypedDict):
    """The message of `encode`: the name of the encoder that all clients must have."""

    encoder: str


class EncodeReply(TypedDict):
    """The reply of `encode`: which encoder the client has under that name, and the sum of its features."""

    checksum: Label
    sum: Annotated[Floats, Sides("_")]


class EncodeSpreadMessage(TypedDict):
    """The message of `encode-spread`: the encoder's name, and the federation's means of its features."""

    encoder: str
    mean: Annotated[Floats, Sides("S")]


class EncodeSpreadReply(TypedDict):
    """The reply of `encode-spread`: the sum of squared deviations from the mean, one a feature."""

    squares: Annotated[Floats, Sides("S", low=0)]


def _enough(message: EncodeMessage | EncodeSpreadMessage, silo: Silo, limits: Limits) -> None:
    """Refuse sums over fewer samples than the silo's limit."""
    require_samples(len(silo.arrays.y), limits, "the sum of features")


@action(
    "encode",
    purpose="said what the encoded data are: sums",
    release=Release.SUMMARY,
    step=Step.SCHEMA,
    limit=_enough,
    cost=free,
)
def encode(message: EncodeMessage, silo: Silo) -> EncodeReply:
    """Round 1: return a checksum of the encoder that this client has under that name, and the sum of its features."""
    encoder = encoders.find(message["encoder"])
    return {"checksum": encoder.checksum, "sum": _features(encoder, silo).sum(axis=0)}


@action(
    "encode-spread",
    purpose="said how far the encoded data are spread: sums of squares",
    release=Release.SUMMARY,
    step=Step.SCHEMA,
    limit=_enough,
    cost=free,
)
def encode_spread(message: EncodeSpreadMessage, silo: Silo) -> EncodeSpreadReply:
    """Round 2: return the sums of squared deviations from the federation's means."""
    return {"squares": squares_about(_features(encoders.find(message["encoder"]), silo), message["mean"])}


def _features(encoder: encoders.Encoder, silo: Silo) -> Floats:
    """Return the features of a client's training samples as they are summed."""
    return summable(encoders.encoded(encoder, silo.arrays.x, silo.device).astype(np.float64), silo)


def with_encoder(
    present: Present, described: Mapping[str, Message], schema: Schema, encoder: Any, progress: Progress
) -> Schema:
    """Return the schema of prepared clients with an encoder that all of them have.

    Parameters
    ----------
    present : Present
        The clients, prepared with `schema`.
    described : mapping
        The description that each client gave of its data.
    schema : Schema
        What the clients agreed on so far.
    encoder : str, torch.nn.Module, callable or None
        The encoder; "none" takes the present one away.
    progress : callable
        Called with (samples encoded, samples).

    Returns
    -------
    Schema
        The schema with the encoder's name, its checksum, and the means and deviations of its features.

    Raises
    ------
    InputError
        If the clients have tables, or encoders that differ.
    """
    name = encoders.name_encoder(encoder)
    if name == (None if schema.encoding is None else schema.encoding.encoder):
        return schema
    if name is None:
        return replace(schema, encoding=None)
    if schema.columns is not None:
        raise InputError(f"`encoder` (={name!r}) is for arrays, such as images; the clients have tables")
    quantity = sum(int(reply["quantity"]) for reply in described.values())
    done = 0

    def watch(count: int) -> None:
        nonlocal done
        done = min(done + count, quantity)
        progress(done, quantity)

    with encoders.watched(watch):
        replies = present.ask(encode, {"encoder": name})
    usual = Counter((reply["checksum"], reply["sum"].shape) for reply in replies.values()).most_common(1)[0][0]
    first = next(client for client, reply in replies.items() if (reply["checksum"], reply["sum"].shape) == usual)
    reference = replies[first]
    for client, reply in replies.items():
        if reply["checksum"] != reference["checksum"]:
            raise InputError(
                f"client `{client}` has another encoder '{name}' than client `{first}` (checksums "
                f"{reply['checksum']} and {reference['checksum']}); install the same version"
            )
        if reply["sum"].shape != reference["sum"].shape:
            raise InputError(
                f"encoder '{name}' gives features of another length at client `{client}` than at `{first}`"
            )

    def moments(replies: Mapping[str, Message]) -> Moments:
        count = np.array(float(sum(int(described[client]["quantity"]) for client in replies)))
        return total(replies, "sum") / count, count

    _, mean, spread = present.variance(replies, moments, encode_spread, {"encoder": name})
    encoding = Encoding(name, str(reference["checksum"]), tuple(mean.tolist()), deviation(spread, mean))
    return replace(schema, encoding=encoding)
