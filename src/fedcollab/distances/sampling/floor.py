"""The floor: how many samples, at the least, a number that leaves a client is a sum or mean of.

A sum over one sample is that sample; a few sums over a few samples can be solved for them (benchmarks/reconstruction.py
does). The floor is the silo's own (`Silo.floors`), and the server may ask for a higher one (`min_samples`), never for a
lower: the larger of the two counts. It is checked where the data is, before anything is computed.
"""

from __future__ import annotations

from fedcollab.errors import InputError
from fedcollab.wire.message import Message
from fedcollab.wire.silo import Silo


def floor(silo: Silo, message: Message) -> int:
    """The larger of the silo's own floor and what the server asks for."""
    return max(silo.floors.min_samples, int(message.get("min_samples", 1)))


def require(silo: Silo, message: Message, samples: int, what: str) -> None:
    """Refuse to send what is made of fewer samples than the floor."""
    least = floor(silo, message)
    if samples < least:
        raise InputError(
            f"client `{silo.name}` would send {what}: sums over {samples} of its samples, from which they can be "
            f"computed; `min_samples` (={least}) forbids it. Give it more samples, leave it out, or lower its floor"
        )
