"""The fewest samples that a number which leaves a client may be a sum or mean of.

A sum over one sample is that sample; a few sums over a few samples can be solved for them (benchmarks/reconstruction.py
does). The limit is the silo's own (`Silo.limits`), and the server may ask for a higher one (`min_samples`), never for a
lower: the larger of the two counts. It is checked where the data is, before anything is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcollab.errors import InputError
from fedcollab.wire.silo import Silo


def least_samples(silo: Silo, message: Mapping[str, Any]) -> int:
    """Return the larger of the silo's own limit and the `min_samples` that the server's message asks for."""
    return max(silo.limits.min_samples, int(message.get("min_samples", 1)))


def require(silo: Silo, message: Mapping[str, Any], samples: int, what: str) -> None:
    """Refuse to send numbers that are made of fewer samples than the limit.

    Parameters
    ----------
    silo : Silo
        The client.
    message : mapping
        The server's message, which may ask for a `min_samples`.
    samples : int
        How many samples the numbers are made of.
    what : str
        What would be sent, for the error message.

    Raises
    ------
    InputError
        If there are too few samples.
    """
    least = least_samples(silo, message)
    if samples < least:
        raise InputError(
            f"client `{silo.name}` would send {what}: sums over {samples} of its samples, from which they can be "
            f"computed; `min_samples` (={least}) forbids it. Give it more samples, leave it out, or lower its limit"
        )
