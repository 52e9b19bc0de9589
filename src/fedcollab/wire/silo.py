"""One client's side: its data, and what it keeps between calls. Nothing here is ever sent as it is."""

from __future__ import annotations

import hashlib
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedcollab.errors import InputError
from fedcollab.wire.limits import NO_FLOORS, Floors
from fedcollab.wire.message import Message

__all__ = ["NO_FLOORS", "Arrays", "Floors", "Silo"]

if TYPE_CHECKING:
    from fedcollab.data.client import ClientData


@dataclass(frozen=True, eq=False)
class Arrays:
    """A client's data as the models take it: float32 features, class indices, and a test split."""

    x: NDArray[np.float32]
    y: NDArray[np.int64]
    x_test: NDArray[np.float32]
    y_test: NDArray[np.int64]


@dataclass(eq=False)
class Silo:
    """What a client-side action works on.

    data     the client's own samples, as it gave them
    state    what it keeps between calls, by procedure: messages, so that every runtime can store them
    device   where its models run
    floors   what it insists on
    key      what nobody else knows, where the silo is a process of its own
    """

    data: ClientData
    state: MutableMapping[str, Message] = field(default_factory=dict)
    device: str = "cpu"
    floors: Floors = field(default_factory=Floors)
    key: bytes = b""
    _arrays: tuple[str, Arrays] | None = None
    _features: tuple[str, NDArray[np.float32]] | None = None

    @property
    def name(self) -> str:
        """The client's stable name."""
        return self.data.name

    @property
    def secret(self) -> str:
        """What only this client knows and knows again: a digest of its samples, to draw numbers with."""
        digest = hashlib.blake2b(self.arrays.x.tobytes(), digest_size=16)
        digest.update(self.arrays.y.tobytes())
        return digest.hexdigest()

    @property
    def arrays(self) -> Arrays:
        """The data prepared by the schema that the federation agreed on (see `clients.schema`)."""
        from fedcollab.federation.prepare import Schema

        text = self._schema()
        if self._arrays is None or self._arrays[0] != text:
            self._arrays = (text, Schema.from_json(text).apply(self.data))
        return self._arrays[1]

    @property
    def features(self) -> NDArray[np.float32]:
        """Training samples as distances see them, one row a sample: through the schema's encoder where it has one."""
        from fedcollab.federation.prepare import Schema

        text, x = self._schema(), self.arrays.x
        if self._features is None or self._features[0] != text:
            encoding = Schema.from_json(text).encoding
            rows = x.reshape(len(x), -1) if encoding is None else encoding.apply(x, self.device)
            self._features = (text, rows)
        return self._features[1]

    def _schema(self) -> str:
        if "prepare" not in self.state:
            raise InputError(f"client `{self.name}` has not been prepared; call `clients.schema.prepare` first")
        text: str = self.state["prepare"]["schema"]
        return text
