"""Frozen encoders: images as feature vectors, made at each client and never transmitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcollab.lazy import lazily

if TYPE_CHECKING:
    from fedcollab.encoders.clients import encode_clients
    from fedcollab.encoders.encoder import ENCODERS, Encoder, find, register_encoder

__all__ = ["ENCODERS", "Encoder", "encode_clients", "find", "register_encoder"]

# PyTorch is imported when something is encoded, not when a saved schema is read.
__getattr__ = lazily(
    __name__,
    {
        "ENCODERS": "encoder",
        "Encoder": "encoder",
        "encode_clients": "clients",
        "find": "encoder",
        "register_encoder": "encoder",
    },
)
