"""Several messages to one client in one: where a message costs seconds, calls of the same round travel together.

A bundle is a message like any other: the names of the actions, and the packed messages one after the other. Each part
is served by itself at the silo, with its own checks, limits and line in the log.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcollab.errors import InputError
from fedcollab.wire.message import pack, unpack

#: the name that a bundle travels under, in the place of an action's
BUNDLE = "bundle"
#: the most parts
MOST = 256


def join_parts(parts: Sequence[tuple[str, bytes]]) -> bytes:
    """Return packed messages, or replies, as one.

    Parameters
    ----------
    parts : sequence of (str, bytes)
        The name of the action and the packed message of each.

    Examples
    --------
    >>> split_parts(join_parts([("a", b"one"), ("b", b"three")]))
    [('a', b'one'), ('b', b'three')]
    """
    content = np.frombuffer(b"".join(content for _, content in parts), dtype=np.uint8)
    return pack({"names": [name for name, _ in parts], "sizes": [len(each) for _, each in parts], "parts": content})


def split_parts(content: bytes, most: int | None = None) -> list[tuple[str, bytes]]:
    """Return what `join_parts` joined. The bytes are not trusted.

    Parameters
    ----------
    content : bytes
        The bundle.
    most : int, optional
        The most bytes allowed.

    Raises
    ------
    InputError
        If it is no bundle, or has too many parts.
    """
    message = unpack(content, most)
    names, sizes, joined = (message.get(key) for key in ("names", "sizes", "parts"))
    proper = isinstance(names, list) and isinstance(sizes, list) and isinstance(joined, np.ndarray)
    if not proper or set(message) != {"names", "sizes", "parts"} or joined.dtype != np.uint8:  # type: ignore[union-attr]
        raise InputError("a bundle of messages cannot be read")
    whole = all(type(size) is int and size >= 0 for size in sizes) and all(isinstance(name, str) for name in names)  # type: ignore[union-attr]
    if not whole or not len(names) == len(sizes) <= MOST or sum(sizes) != joined.size:  # type: ignore[arg-type, union-attr]
        raise InputError(f"a bundle of messages does not fit together, or has more than {MOST} parts")
    data, start, parts = joined.tobytes(), 0, []  # type: ignore[union-attr]
    for name, size in zip(names, sizes, strict=True):  # type: ignore[arg-type]
        parts.append((name, data[start : start + size]))
        start += size
    return parts
