"""What a federation agrees on when it uses an encoder: part of its schema.

z = (phi(x) - mean) / std        mean and std of each feature, over the federation's training samples
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.errors import InputError
from fedcollab.progress import Progress, silent
from fedcollab.wire.message import Message

if TYPE_CHECKING:
    from fedcollab.federation.prepare import Schema
    from fedcollab.wire.runtime import Runtime
    from fedcollab.wire.silo import Silo


@dataclass(frozen=True)
class Encoding:
    """An encoder by name and checksum, and the scaling of its features."""

    encoder: str
    checksum: str
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def width(self) -> int:
        """Numbers in one feature vector."""
        return len(self.mean)

    def apply(self, x: NDArray[np.float32], device: str = "cpu") -> NDArray[np.float32]:
        """Scaled features of prepared samples."""
        features = _features(self.encoder, self.checksum, x, device)
        mean, std = (np.array(part, dtype=np.float32) for part in (self.mean, self.std))
        return np.ascontiguousarray((features - mean) / std)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Encoding:
        """From JSON."""
        return cls(content["encoder"], content["checksum"], tuple(content["mean"]), tuple(content["std"]))


def _features(name: str, checksum: str | None, x: NDArray[np.float32], device: str) -> NDArray[np.float32]:
    from fedcollab.encoders.encoder import find
    from fedcollab.encoders.features import encoded

    encoder = find(name)
    if checksum is not None and encoder.checksum != checksum:
        raise InputError(
            f"encoder '{name}' has the checksum {encoder.checksum} here; the federation agreed on {checksum}"
        )
    return encoded(encoder, x, device)


# The client side: only aggregates leave.


def encode_client(message: Message, silo: Silo) -> Message:
    """Round 1: which encoder this client has under that name, and the sum of its features."""
    from fedcollab.encoders.encoder import find

    features = _features(message["encoder"], None, silo.arrays.x, silo.device)
    return {"checksum": find(message["encoder"]).checksum, "sum": features.sum(axis=0, dtype=np.float64)}


def encode_spread_client(message: Message, silo: Silo) -> Message:
    """Round 2: sums of squared deviations from the federation's means."""
    features = _features(message["encoder"], None, silo.arrays.x, silo.device)
    return {"squares": ((features.astype(np.float64) - message["mean"]) ** 2).sum(axis=0)}


# The server side: sees replies alone.


def with_encoder(runtime: Runtime, schema: Schema, encoder: Any, progress: Progress = silent) -> Schema:
    """The schema of a prepared federation, with an encoder that all of its clients have."""
    from fedcollab.encoders.encoder import name_encoder
    from fedcollab.encoders.features import watched
    from fedcollab.federation.prepare import ask_everyone, deviation, total, variance

    name = name_encoder(encoder)
    if name == (None if schema.encoding is None else schema.encoding.encoder):
        return schema
    if name is None:
        return replace(schema, encoding=None)
    if schema.columns is not None:
        raise InputError(f"`encoder` (={name!r}) is for arrays, such as images; the clients have tables")
    quantity = sum(int(reply["quantity"]) for reply in runtime.described.values())
    done = 0

    def watch(count: int) -> None:
        nonlocal done
        done = min(done + count, quantity)
        progress(done, quantity)

    with watched(watch):
        replies = ask_everyone(runtime, "encode", {"encoder": name})
    (first, reference), *others = replies.items()
    for client, reply in others:
        if reply["checksum"] != reference["checksum"]:
            raise InputError(
                f"client `{client}` has another encoder '{name}' than client `{first}` (checksums "
                f"{reply['checksum']} and {reference['checksum']}); install the same version"
            )
        if reply["sum"].shape != reference["sum"].shape:
            raise InputError(
                f"encoder '{name}' gives features of another length at client `{client}` than at `{first}`"
            )

    def moments(replies: Mapping[str, Message]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        count = np.array(float(sum(int(runtime.described[client]["quantity"]) for client in replies)))
        return total(replies, "sum") / count, count

    _, mean, spread = variance(runtime, replies, moments, "encode-spread", {"encoder": name})
    encoding = Encoding(name, str(reference["checksum"]), tuple(mean.tolist()), deviation(spread))
    return replace(schema, encoding=encoding)
