"""Frozen encoders: images as feature vectors, made at each client and never transmitted."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedcollab.encoders.clients import encode_clients
    from fedcollab.encoders.encoder import ENCODERS, Encoder, find, register_encoder

__all__ = ["ENCODERS", "Encoder", "encode_clients", "find", "register_encoder"]

_HOME = {
    "ENCODERS": "fedcollab.encoders.encoder",
    "Encoder": "fedcollab.encoders.encoder",
    "encode_clients": "fedcollab.encoders.clients",
    "find": "fedcollab.encoders.encoder",
    "register_encoder": "fedcollab.encoders.encoder",
}


def __getattr__(name: str) -> Any:
    """PyTorch is imported when something is encoded, not when a saved schema is read."""
    if name not in _HOME:
        raise AttributeError(f"module 'fedcollab.encoders' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
