"""The client's side of one call: bytes in, bytes out. The one place where a message meets a silo, in every runtime."""

from __future__ import annotations

from fedcollab.wire.action import find
from fedcollab.wire.message import pack, unpack
from fedcollab.wire.silo import Silo


def serve(action: str, content: bytes, silo: Silo) -> bytes:
    """Have the silo do what a message asks; only the reply leaves."""
    return pack(find(action)(unpack(content), silo))
