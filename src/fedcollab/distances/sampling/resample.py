"""Were a client's label counts drawn, or were they set? Folds depend on it.

Most data are drawn: how many samples of a label a client has is chance, and random folds judge without bias. Some are
dealt out: a benchmark that gives every client 6 images of each label, a study with 50 cases and 50 controls. Then a
label that chance puts into training more often is held out less often, so that under random folds what a discriminator
learns about label shares is always wrong, and like clients of few samples seem nearer than alike (by .12 at 40
samples of 8 labels, `benchmarks/distances_sampling.py`). There, folds take the same share of every label at every
client (`folds.order`). With counts that were drawn that would be a bias the other way, so `auto` asks for proof: every
client has exactly the label counts of some other one, and chance would hardly do that. A client with counts c out of n
has them with a probability of at most

    b(c) = n! / prod_k c_k!  prod_k (c_k / n)^c_k,          whatever its distribution is,

so N clients, conditional on their sizes, show d different counts only with probability at most

    choose(N, d)  prod over the N - d that repeat one already seen of  sum over the counts c of its size of b(c).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from fedcollab.errors import InputError

DRAWN, SET, AUTO = "drawn", "set", "auto"
PROOF = 1e-3

Counts = Mapping[str, int]


def resolve(asked: str, counts: Iterable[Counts]) -> str:
    """Return whether label counts were drawn or set: as asked, or found out from all clients' label counts.

    Parameters
    ----------
    asked : str
        "drawn", "set" or "auto".
    counts : iterable of mapping
        The label counts of each client.

    Raises
    ------
    InputError
        If `asked` is none of the three.
    """
    if asked not in (AUTO, DRAWN, SET):
        raise InputError(f"`label_counts` (={asked!r}) must be 'auto', 'drawn' or 'set'")
    if asked != AUTO:
        return asked
    return SET if log_chance(counts) < math.log(PROOF) else DRAWN


def log_chance(counts: Iterable[Counts]) -> float:
    """Return the logarithm of the bound above, at most 0; it is 0 too if a client shares its counts with no other.

    Parameters
    ----------
    counts : iterable of mapping
        The label counts of each client.

    Returns
    -------
    float
        The logarithm of the largest probability that drawn counts repeat like this.

    Examples
    --------
    >>> deal = {str(label): 6 for label in range(20)}
    >>> log_chance([deal, deal]) < -30, log_chance([{"a": 50, "b": 50}] * 2) < -3
    (True, False)
    """
    seen = Counter(tuple(sorted((label, count) for label, count in each.items() if count)) for each in counts)
    if not seen or min(seen.values()) < 2:
        return 0.0
    at_size: dict[int, float] = {}  # logarithms: with many labels the bounds are too small for numbers
    for histogram in seen:
        size = _size(histogram)
        at_size[size] = float(np.logaddexp(at_size.get(size, -math.inf), _log_bound(histogram)))
    total = math.log(math.comb(seen.total(), len(seen)))
    total += sum((times - 1) * min(0.0, at_size[_size(histogram)]) for histogram, times in seen.items())
    return min(0.0, total)


def _size(histogram: tuple[tuple[str, int], ...]) -> int:
    return sum(count for _, count in histogram)


def _log_bound(histogram: tuple[tuple[str, int], ...]) -> float:
    size = _size(histogram)
    return math.lgamma(size + 1) + sum(c * math.log(c / size) - math.lgamma(c + 1) for _, c in histogram)
