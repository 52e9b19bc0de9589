"""Frozen encoders: images as feature vectors, made at each client and never transmitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcollab.lazy import lazily

if TYPE_CHECKING:
    from fedcollab.encoders.encoder import ENCODERS, Encoder, find, name_encoder, register_encoder
    from fedcollab.encoders.features import encoded, watched

__all__ = ["ENCODERS", "Encoder", "encoded", "find", "name_encoder", "register_encoder", "watched"]

# PyTorch is imported when something is encoded, not when a saved schema is read.
__getattr__ = lazily(
    __name__,
    {
        "ENCODERS": "encoder",
        "Encoder": "encoder",
        "encoded": "features",
        "find": "encoder",
        "name_encoder": "encoder",
        "register_encoder": "encoder",
        "watched": "features",
    },
)
