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


def fewer_folds(samples: int, least: int) -> str:
    """Return in words with how many folds a client with few samples takes part; an empty text if with none.

    Parameters
    ----------
    samples : int
        The client's samples.
    least : int
        The fewest samples that a fold may have.

    Examples
    --------
    >>> fewer_folds(32, 10)
    'With fewer folds it takes part: `folds` of 3 (`--folds 3`)'
    >>> fewer_folds(19, 10)
    ''
    """
    folds = samples // least
    return f"With fewer folds it takes part: `folds` of {folds} (`--folds {folds}`)" if folds >= 2 else ""


def require(silo: Silo, message: Mapping[str, Any], samples: int, what: str, remedy: str = "") -> None:
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
    remedy : str
        What admits the client all the same, where something does.

    Raises
    ------
    InputError
        If there are too few samples.
    """
    least = least_samples(silo, message)
    if samples < least:
        raise InputError(
            f"client `{silo.name}` would send {what}: sums over {samples} of its samples, from which they can be "
            f"computed; `min_samples` (={least}) forbids it. "
            f"{remedy or 'Give it more samples, leave it out, or lower its limit'}"
        )
