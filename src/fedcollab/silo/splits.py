"""Test splits that a silo lets a server choose: no two of them may differ by a few samples.

A server names the share and the seed of the hold-out, and gets sums over the rest. Two rests that differ by one sample
would give that sample away as the difference of two sums. So a silo remembers the splits that it has answered for, and
takes a new one only if its training part differs from that of every earlier one by `min_samples`, or by none; and no
more than `max_splits` in all. A silo that brings its own test data has no such split.

Sums are also told by label, by category, and of the values that are there. So of each such part of the samples, too,
one split must not have a few that the other has not, if it has all the other has: what is exchanged for something else
is no sample by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.data.samples import is_numeric, is_table
from fedcollab.data.split import held_out
from fedcollab.wire.action import Refused, require_samples
from fedcollab.wire.limits import Limits
from fedcollab.wire.silo import Silo

STATE = "splits"
#: a text column of more different texts than this is refused anyway
MOST_TEXTS = 100


def training_samples(silo: Silo, share: float, seed: int) -> int:
    """Return how many samples a hold-out leaves for training.

    Parameters
    ----------
    silo : Silo
        The silo; one with test data of its own holds nothing out.
    share, seed : float, int
        The hold-out that the server chose.

    Returns
    -------
    int
        The number of samples.
    """
    if silo.data.y_test is not None:
        return silo.data.quantity
    return int((~held_out(silo.data, share, seed, silo.lot)).sum())


def objection(silo: Silo, share: float, seed: int, limits: Limits) -> str | None:
    """Return why this silo refuses a hold-out, or None if it accepts it; an accepted one is remembered.

    Parameters
    ----------
    silo : Silo
        The silo, whose state lists the hold-outs that it has accepted.
    share, seed : float, int
        The hold-out that the server chose.
    limits : Limits
        The silo's limits.

    Returns
    -------
    str or None
        The reason, for the refusal.
    """
    known = [(float(a), int(b)) for a, b in silo.state.get(STATE, {}).get("known", [])]
    if silo.data.y_test is not None or (share, seed) in known:
        return None
    held = held_out(silo.data, share, seed, silo.lot)
    subsets = _subsets(silo) if known else np.zeros((0, len(held)))
    for other in known:
        before = held_out(silo.data, *other, silo.lot)
        differing = int((held != before).sum())
        if 0 < differing < limits.min_samples:
            return (
                f"the test split (share {share:g}, seed {seed}) differs by {differing} sample(s) from an earlier one "
                f"(share {other[0]:g}, seed {other[1]}); this silo asks for at least {limits.min_samples}, or the same"
            )
        more, less = subsets @ (held & ~before), subsets @ (before & ~held)
        if np.any(((more == 0) != (less == 0)) & (more + less < limits.min_samples)):
            return (
                f"the test split (share {share:g}, seed {seed}) differs by fewer than {limits.min_samples} samples "
                f"of a label or category from an earlier one (share {other[0]:g}, seed {other[1]}); take that one"
            )
    if len(known) >= limits.max_splits:
        return (
            f"this silo has answered for {len(known)} test splits, the last with share {known[-1][0]:g} and seed "
            f"{known[-1][1]}; take one of them"
        )
    silo.state[STATE] = {"known": [list(split) for split in (*known, (share, seed))]}
    return None


def _subsets(silo: Silo) -> NDArray[np.float64]:
    """Return the parts of a silo's samples that sums are told of, one row each: 1 where a sample belongs to it.

    They are the samples of each label (of a numeric target, those with another value than most), those that have a
    value in a column, those that have another value in it than the most frequent number, and those of each category (of
    a column of text, or of two numbers).
    """
    data = silo.data
    whole = np.ones(len(data.y), dtype=bool)
    found: list[NDArray[Any]] = (
        [whole, *_unusual(data.y, whole)] if is_numeric(data.y) else [data.y == label for label in np.unique(data.y)]
    )
    columns = [data.x[name] for name in data.x.columns] if is_table(data.x) else []
    for values in columns:
        there = values.notna().to_numpy()
        if not there.all():
            found.append(there)
        if values.dtype.kind in "iuf":
            numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
            found += _unusual(numbers, there)
        texts = values.astype(str).to_numpy(dtype=str)
        distinct, counts = np.unique(texts[there], return_counts=True)
        if len(distinct) <= (2 if values.dtype.kind in "biuf" else MOST_TEXTS):
            enough = counts >= min(silo.limits.min_samples, len(texts))  # rarer ones count as missing
            found += [there & (texts == text) for text in distinct[enough]]
            found.append(~there | np.isin(texts, distinct[~enough]))  # those of no such category
    return np.stack(found).astype(np.float64)


def _unusual(numbers: NDArray[np.float64], there: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    """Return those that have another value than most, whose sum is theirs; nothing if no value is of more than one."""
    distinct, counts = np.unique(numbers[there], return_counts=True)
    return [there & (numbers != distinct[counts.argmax()])] if len(distinct) > 2 and counts.max() > 1 else []


def limit_split(share: float, seed: int, silo: Silo, limits: Limits) -> None:
    """Refuse a test split that the silo's limits do not allow.

    Parameters
    ----------
    share, seed : float, int
        The hold-out that the server chose.
    silo : Silo
        The silo, which remembers the splits that it has answered for.
    limits : Limits
        Its limits.

    Raises
    ------
    Refused
        If too few samples are left to train on, or the split is too near to an earlier one.
    """
    require_samples(training_samples(silo, share, seed), limits, "every number")
    why = objection(silo, share, seed, limits)
    if why is not None:
        raise Refused(why)
