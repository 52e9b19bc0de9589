"""A checksum of all of a client's samples, as it gave them."""

from __future__ import annotations

import hashlib
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fedcollab.data.client import ClientData
from fedcollab.data.samples import is_table

_known: WeakKeyDictionary[ClientData, str] = WeakKeyDictionary()


def version_of(data: ClientData) -> str:
    """Return a checksum of a client's samples without a key, remembered: every message to a silo asks."""
    if data not in _known:
        _known[data] = digest_of_data(data)
    return _known[data]


def digest_of_data(data: ClientData, key: bytes = b"") -> str:
    """Return a checksum over all of a client's samples, in hexadecimal digits.

    Parameters
    ----------
    data : ClientData
        The client.
    key : bytes
        What comes first, so that nobody without it can try out what the samples might be.
    """
    digest = hashlib.sha256(key)
    for part in (data.x, data.y, data.x_test, data.y_test, data.groups):
        for values in _arrays(part):
            digest.update(f"{values.dtype}{values.shape}".encode())
            digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def _arrays(part: Any) -> list[NDArray[Any]]:
    """Return an array, or the columns of a table with their names, as arrays of numbers or text."""
    if part is None:
        return [np.zeros(0)]
    if not is_table(part):
        return [np.asarray(part)]
    found = [np.array([str(name) for name in part.columns])]
    for name in part.columns:
        values = part[name]
        if values.dtype.kind in "biuf":
            found.append(values.to_numpy(dtype=np.float64, na_value=np.nan))
        else:
            found += [values.isna().to_numpy(), values.astype(str).to_numpy(dtype=str)]
    return found
