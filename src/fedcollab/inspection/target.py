"""Findings about a numeric target: the same everywhere, other units or another range at a client, values far off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.data.rare import FAR
from fedcollab.inspection.column import ColumnProfile, profile
from fedcollab.inspection.differences import LABEL
from fedcollab.inspection.labels import Replies
from fedcollab.inspection.result import Finding
from fedcollab.inspection.tables import unit_findings
from fedcollab.wire.silo import Silo

#: the parts of equal size that a target is cut into, to see whether a column alone tells it
PARTS = 4
#: how many of the others' deviations a client's mean may be away from theirs
APART = 3.0
#: the share of far values from which they are mentioned
MANY = 0.02


def profile_of(y: NDArray[Any], silo: Silo) -> ColumnProfile:
    """Return counts and moments of a target, as of a column.

    Parameters
    ----------
    y : array
        The target of each row.
    silo : Silo
        Whose rows they are.
    """
    import pandas as pd

    return profile(LABEL, pd.Series(y.astype(np.float64)), np.zeros(len(y), dtype=np.int64), silo, False)


def in_parts(y: NDArray[Any]) -> NDArray[np.int64]:
    """Return which quarter of the target's values each row has, as a number from 0."""
    edges = np.quantile(y.astype(np.float64), np.arange(1, PARTS) / PARTS)
    return np.unique(np.searchsorted(edges, y), return_inverse=True)[1].reshape(-1).astype(np.int64)


def far_values(y: NDArray[Any], limit: int) -> int:
    """Return how many values are farther from the median than `FAR` deviations of the middle; 0 for few.

    Parameters
    ----------
    y : array
        The target of each row.
    limit : int
        The fewest rows that a number may be made of.

    Examples
    --------
    >>> far_values(np.append(np.arange(20.0), 1000.0), 1)
    1
    """
    away = np.abs(y.astype(np.float64) - np.median(y))
    found = int((away > FAR * 1.4826 * np.median(away)).sum()) if np.median(away) > 0 else 0
    return found if found >= limit else 0


def target_findings(replies: Replies) -> Iterator[Finding]:
    """Yield what is doubtful about the clients' numeric targets.

    Parameters
    ----------
    replies : mapping
        What each client said about its data; those without a numeric target are passed over.
    """
    targets = {name: reply["target"] for name, reply in replies.items() if "target" in reply}
    for name, target in targets.items():
        if target["distinct"] == 1:
            seen, effect = "the target is the same in all rows", "a model trained alone only repeats it"
            remedy = "Leave the client out, or look why."
            yield Finding(name, LABEL, "constant-target", "warning", f"{seen}: {effect}.", remedy)
        share = replies[name].get("far_targets", 0) / replies[name]["quantity"]
        if share >= MANY:
            seen = f"{100 * share:.1f} % of the targets are more than {FAR:g} deviations from the others"
            effect = "squared errors are mostly theirs"
            remedy = "Look whether they are right; --loss absolute counts them less."
            yield Finding(name, LABEL, "far-targets", "warning", f"{seen}: {effect}.", remedy)
    units = list(unit_findings(LABEL, targets))
    yield from units
    yield from _ranges({name: part for name, part in targets.items() if name not in {each.client for each in units}})


def _ranges(targets: dict[str, Any]) -> Iterator[Finding]:
    """Find clients whose mean target is far outside of what the others have."""
    known = {name: part for name, part in targets.items() if part["mean"] is not None and part["distinct"] > 1}
    if len(known) < 3:
        return
    for name, part in known.items():
        others = [other for key, other in known.items() if key != name]
        mean, std = (float(np.median([other[key] for other in others])) for key in ("mean", "std"))
        spread = float(np.std([other["mean"] for other in others]))
        if abs(part["mean"] - mean) > APART * (std + spread):
            seen = f"the mean target is {part['mean']:.3g}; at the other clients it is about {mean:.3g}"
            effect = "one model for all must follow the client itself (an own intercept helps)"
            remedy = "Look whether the target is measured alike (--trust label: it is)."
            yield Finding(name, LABEL, "other-range", "warning", f"{seen}: {effect}.", remedy)
