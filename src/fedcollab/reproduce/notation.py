"""How coalitions are written: in cells, in the cells' file names, and in tables."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

Coalitions = str | list[list[str]]


def shorthand(coalitions: list[list[str]]) -> Coalitions:
    """Return "local" or "global" for these two partitions, so that equal partitions are one cell."""
    if len(coalitions) == 1:
        return "global"
    return "local" if all(len(members) == 1 for members in coalitions) else coalitions


def slug(coalitions: Coalitions) -> str:
    """Return coalitions as part of a file name; a long one is shortened to a checksum.

    >>> slug([["client-00", "client-01", "client-02"], ["client-03"], ["client-04", "client-06"]])
    '0-2.3.4+6'
    """
    if isinstance(coalitions, str):
        return coalitions
    text = ".".join("+".join(_ranges(members)) for members in coalitions)
    if len(text) <= 60:
        return text
    return f"{len(coalitions)}-coalitions-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def in_table(coalitions: Coalitions) -> str:
    """Return coalitions as an entry of a table.

    >>> in_table([["client-00", "client-01"], ["client-03"]])
    '0-1, 3'
    """
    return slug(coalitions).replace(".", ", ")


def _ranges(members: Sequence[str]) -> list[str]:
    """Return the numbers in the names, neighbours as a range; names without numbers as they are."""
    if not all(name.rpartition("-")[2].isdigit() for name in members):
        return list(members)
    numbers = sorted(int(name.rpartition("-")[2]) for name in members)
    starts = [k for k, number in enumerate(numbers) if k == 0 or numbers[k - 1] != number - 1]
    ends = [*(start - 1 for start in starts[1:]), len(numbers) - 1]
    return [str(numbers[a]) if a == b else f"{numbers[a]}-{numbers[b]}" for a, b in zip(starts, ends, strict=True)]
