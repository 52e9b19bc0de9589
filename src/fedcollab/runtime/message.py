"""Messages: what crosses the line between server and client, and how it is written.

A message is a flat dict from names to NumPy arrays or plain JSON values. On the wire it is a safetensors file, whose
format cannot carry code: arrays under their names, everything else as one JSON text. No pickle, ever.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedcollab.errors import InputError

Message = dict[str, Any]
_PLAIN = "__plain__"


def pack(message: Message) -> bytes:
    """Serialise a message.

    >>> unpack(pack({"round": 3, "w": np.zeros(2, dtype=np.float32)}))
    {'round': 3, 'w': array([0., 0.], dtype=float32)}
    """
    arrays = {key: np.ascontiguousarray(value) for key, value in message.items() if isinstance(value, np.ndarray)}
    plain = {key: value for key, value in message.items() if not isinstance(value, np.ndarray)}
    order = json.dumps([list(message), plain], allow_nan=False).encode()
    return bytes(save({**arrays, _PLAIN: np.frombuffer(order, dtype=np.uint8)}))


def unpack(content: bytes) -> Message:
    """Read what `pack` wrote."""
    try:
        arrays: dict[str, NDArray[Any]] = load(content)
        order, plain = json.loads(arrays.pop(_PLAIN).tobytes())
        return {key: plain[key] if key in plain else arrays[key] for key in order}
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"a message of {len(content)} bytes cannot be read: {error}") from None


def payload(message: Message) -> int:
    """Bytes of the arrays in a message: the cost that grows with the model, headers not counted."""
    return sum(value.nbytes for value in message.values() if isinstance(value, np.ndarray))
