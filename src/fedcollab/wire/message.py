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
HEADER, ARRAYS = 1 << 20, 1000


def pack(message: Message) -> bytes:
    """Serialise a message in the safetensors format.

    Parameters
    ----------
    message : dict
        NumPy arrays and plain JSON values by name.

    Returns
    -------
    bytes
        What `unpack` reads.

    Examples
    --------
    >>> unpack(pack({"round": 3, "w": np.zeros(2, dtype=np.float32)}))
    {'round': 3, 'w': array([0., 0.], dtype=float32)}
    """
    arrays = {key: np.ascontiguousarray(value) for key, value in message.items() if isinstance(value, np.ndarray)}
    plain = {key: value for key, value in message.items() if not isinstance(value, np.ndarray)}
    order = json.dumps([list(message), plain], allow_nan=False).encode()
    return bytes(save({**arrays, _PLAIN: np.frombuffer(order, dtype=np.uint8)}))


def unpack(content: bytes, most: int | None = None, arrays: int | None = ARRAYS) -> Message:
    """Read a message that `pack` wrote. The bytes are not trusted: they may come from anyone.

    Lengths are checked before anything is allocated. The arrays must fill the message exactly (safetensors checks
    that), so that no small message becomes a large one in memory.

    Parameters
    ----------
    content : bytes
        The serialised message.
    most : int, optional
        The most bytes allowed.
    arrays : int or None
        The most arrays allowed, beside a header of at most 1 MiB; None: neither is checked (a file of our own).

    Raises
    ------
    InputError
        If the bytes are not a message, or more than allowed.
    """
    try:
        if most is not None and len(content) > most:
            raise ValueError(f"more than the {most} bytes allowed")
        if arrays is not None:
            _check_header(content, arrays)
        found: dict[str, NDArray[Any]] = load(content)
        text = found.pop(_PLAIN).tobytes()
        order, plain = json.loads(text, parse_constant=_no_constant)
        if (
            b"\\ud" in text.lower()
        ):  # half a surrogate pair cannot be written or printed: UnicodeEncodeError, a ValueError
            json.dumps(plain, ensure_ascii=False).encode()
        if not isinstance(plain, dict) or sorted(order) != sorted([*plain, *found]):
            raise ValueError("its keys do not fit its content")
        return {key: plain[key] if key in plain else found[key] for key in order}
    except (SafetensorError, KeyError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InputError(f"a message of {len(content)} bytes cannot be read: {error or type(error).__name__}") from None


def receive(content: bytes) -> Message:
    """Read a reply from another process; one that cannot be read becomes `{"garbage": reason}` instead of an error."""
    try:
        return unpack(content)
    except InputError as error:
        return {"garbage": str(error)}


def _check_header(content: bytes, arrays: int) -> None:
    """Check the header's length (the first 8 bytes) and that it is a JSON object of at most `arrays` entries."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(HEADER, len(content) - 8):
        raise ValueError("its header does not fit")
    header = json.loads(content[8 : 8 + length])
    if not isinstance(header, dict) or len(header) > arrays or "__metadata__" in header:
        raise ValueError("its header is not a list of arrays")


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def payload(message: Message) -> int:
    """Return the bytes of the arrays in a message: the cost that grows with the model, headers not counted."""
    return sum(value.nbytes for value in message.values() if isinstance(value, np.ndarray))
