"""Encoded samples, kept: in memory while a process runs, and on the client's own disk between runs.

The key is a checksum of the samples' bytes, of the encoder's name and checksum, and of what it makes of two noise
samples, so that a changed encoder never meets its old features. Files are NPZ without pickle (whose CRC tells damage),
written whole or not at all, readable by the user alone; the oldest go when they take more than FEDCOLLAB_FEATURES_GB
(4 unless set; 0 keeps none). Features of private images are private: they stay where the images are.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import numpy as np

from fedcollab.encoders.encoder import Encoder, Floats, Watch
from fedcollab.errors import InputError
from fedcollab.files import cache_folder, write_bytes

MEMORY = 1 << 29
GIGABYTES = 4.0
_memory: OrderedDict[str, Floats] = OrderedDict()
_watch: ContextVar[Watch] = ContextVar("_watch", default=lambda count: None)


def encoded(encoder: Encoder, x: Floats, device: str = "cpu") -> Floats:
    """Return the features of prepared samples, from memory, from disk or computed now.

    Parameters
    ----------
    encoder : Encoder
        The encoder.
    x : array of shape (n, ...)
        Prepared samples.
    device : str
        Where to compute.

    Returns
    -------
    array of shape (n, features)
        Read-only.
    """
    probe = encoder.probe(x.shape[1:])
    key = _key(encoder, x, probe)
    watch = _watch.get()
    if key in _memory:
        _memory.move_to_end(key)
        watch(len(x))
        return _memory[key]
    kept = _read(key) if probe is not None else None
    if kept is None or len(kept) != len(x):
        kept = encoder(x, device, watch)
        if probe is not None:
            _write(key, kept)
    else:
        watch(len(x))
    kept.setflags(write=False)
    _memory[key] = kept
    while len(_memory) > 1 and sum(part.nbytes for part in _memory.values()) > MEMORY:
        _memory.popitem(last=False)
    return kept


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Call `watch` with the number of samples of every batch that is encoded within the block."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


def _key(encoder: Encoder, x: Floats, probe: bytes | None) -> str:
    """Return the key of the features of `x`, from the `encoder`, its `probe` and the samples' bytes."""
    digest = hashlib.sha256(f"{encoder.name} {encoder.checksum} {x.dtype} {x.shape}".encode())
    digest.update(f"{id(encoder)}".encode() if probe is None else probe)
    digest.update(np.ascontiguousarray(x).data)
    return digest.hexdigest()[:32]


def _folder() -> Path:
    """Return the folder that holds features between runs."""
    return cache_folder() / "features"


def _limit() -> float:
    """Return how many bytes of features may be on disk."""
    text = os.environ.get("FEDCOLLAB_FEATURES_GB", "").strip()
    try:
        return float(text) * 1e9 if text else GIGABYTES * 1e9
    except ValueError:
        raise InputError(f"`FEDCOLLAB_FEATURES_GB` (={text!r}) must be a number of gigabytes") from None


def _read(key: str) -> Floats | None:
    """Return the features that are on disk under this key, or None if there are none that can be read."""
    path = _folder() / f"{key}.npz"
    if _limit() <= 0:
        return None
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            features: Floats = file["features"]
        os.utime(path)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    return features


def _write(key: str, features: Floats) -> None:
    """Save features, then remove the least recently used until all fit; a disk that cannot be written is ignored."""
    limit = _limit()
    if features.nbytes > limit:
        return
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, features=features)
    try:
        _folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        write_bytes(_folder() / f"{key}.npz", buffer.getvalue(), private=True)
        files = sorted(_folder().glob("*.npz"), key=lambda path: path.stat().st_mtime_ns)
        total = sum(path.stat().st_size for path in files)
        for path in files[:-1]:
            if total <= limit:
                break
            total -= path.stat().st_size
            path.unlink(missing_ok=True)
    except (OSError, InputError):
        return
