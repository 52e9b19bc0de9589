"""Candidates: the groupings that theory proposes, cut down to a few by the proxies.

The paths over C of the distances hold every partition that the bound recommends for some C; own weights along C are the
bound's answer where clients may weigh each other as they like. Both ends, each alone and everyone together, are always
candidates. The proxies (`advice.proxy`) say which partition and which C of the own weights are worth a pilot.

A partition that follows the noise of the distances looks better than it is on the rows that the distances have seen. So
of the partitions with the lowest errors the one is taken that is best with this allowed for: errors are raised by
OPTIMISM times u = min(1, UNSTEADY (1 - r)), where r is the adjusted Rand index of the partition and of what resampled
distances propose. Partitions of like clients have r from .1 to .8, those of clients with different rules nearly 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.advice.proxy import Sums, coalition_weights
from fedcollab.advice.words import how_in_words
from fedcollab.coalitions import CPath, as_collaboration, personal_weights, steadiness
from fedcollab.distances import Distances
from fedcollab.training.algorithms.own_weights import share_rows

Floats = NDArray[np.float64]

INTERCEPT = ("output-bias",)
#: the most models of a pilot of own weights
ROWS = 3
#: values of C that own weights are tried at, as shares of the C at which everyone is nearly one (in logarithms)
STEPS = 9
#: own weights whose rows are all this near to a coalition's are that coalition
SAME = 0.05
#: what plans that follow the noise of the distances look better by than they are, as a share of the loss
OPTIMISM = 0.03
#: how fast a partition that changes with the sample counts as noise
UNSTEADY = 3.0
#: how many of the partitions with the lowest errors are held against resampled distances, and against how many
SHORTLIST, DRAWS = 3, 10


@dataclass(frozen=True, eq=False)
class Plan:
    """Who trains with whom, and how.

    Parameters
    ----------
    kind : str
        "alone", "together", "coalitions" or "own weights".
    coalitions : list of lists of str
        The coalitions; under own weights the clients that share a model.
    algorithm : str
        The algorithm's name.
    options : mapping
        Its options.
    keep : tuple of str
        Parameters that stay with each client.
    C : float or None
        The C whose partition or weights these are, where there is one.
    weights : mapping
        Under own weights, what each client weighs in the model of each group (its position).
    noisy : float
        How far the plan may follow the noise of the distances: from 0, coalitions that resampled distances propose
        too, to 1, coalitions that they do not propose, or of which that is not known.
    """

    kind: str
    coalitions: list[list[str]]
    algorithm: str
    options: Mapping[str, Any] = field(default_factory=dict)
    keep: tuple[str, ...] = ()
    C: float | None = None
    weights: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    noisy: float = 1.0

    @property
    def personal(self) -> bool:
        """Whether clients have parameters of their own."""
        return bool(self.keep) or self.algorithm in ("ditto", "own-intercept", "own-weights")

    @property
    def label(self) -> str:
        """Who and how, in words."""
        if self.kind == "alone":
            return "alone"
        how = how_in_words(self.algorithm, self.keep)
        if self.kind == "own weights":
            return how
        return f"{'everyone' if self.kind == 'together' else f'{len(self.coalitions)} coalitions'}, {how}"


def labels(plans: Sequence[Plan]) -> list[str]:
    """Return every plan's label; those that would read the same get their numeric options too.

    Parameters
    ----------
    plans : sequence of Plan
        The plans.

    Examples
    --------
    >>> plan = Plan("together", [["north", "south"]], "ditto", {"lam": 0.3})
    >>> labels([plan, replace(plan, options={"lam": 1.0}), replace(plan, algorithm="fedavg")])
    ['everyone, Ditto (lam 0.3)', 'everyone, Ditto (lam 1)', 'everyone, FedAvg']
    """
    plain = [plan.label for plan in plans]
    options = [
        ", ".join(f"{key} {value:g}" for key, value in plan.options.items() if isinstance(value, int | float))
        for plan in plans
    ]
    return [
        f"{text} ({more})" if more and plain.count(text) > 1 else text
        for text, more in zip(plain, options, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class Partition:
    """A partition: the held-out error of the proxies, C and distances that it is best for, `noisy` as in `Plan`.

    `width` is how wide the range of C is that it is best for, in logarithms.
    """

    error: float
    C: float
    coalitions: list[list[str]]
    distances: Distances
    width: float
    noisy: float = 1.0


def best_partition(
    kinds: Sequence[Distances], paths: Sequence[CPath], sums: Sums, quantities: Mapping[str, int]
) -> Partition | None:
    """Return the partition with the lowest held-out error of the proxies, what noise promises being allowed for.

    Clients with too few rows for sums cannot say where they belong: of partitions that differ in these alone, the one
    is taken that is best for the widest range of C.

    Parameters
    ----------
    kinds, paths : sequences
        Distances of one or more kinds, and the path over C of each; both ends of a path are passed over.
    sums : Sums
        What the clients answered.
    quantities : mapping of int
        Samples by client.

    Returns
    -------
    Partition or None
        None if there is no partition between the ends, or no sums.
    """
    found: dict[frozenset[frozenset[str]], Partition] = {}
    known = {name: quantities[name] for name in sums.names}
    for kind, segment in ((kind, segment) for kind, path in zip(kinds, paths, strict=True) for segment in path):
        coalitions = segment.coalitions
        if len(coalitions) in (1, len(quantities)) or len(known) < 2:
            continue
        inside = [[name for name in members if name in known] for members in coalitions]
        key = frozenset(frozenset(members) for members in inside if members)
        width = float(np.log(segment.c_high / max(segment.c_low, 1e-9)))
        if key in found:
            if width > found[key].width:
                found[key] = replace(found[key], C=segment.C, coalitions=coalitions, distances=kind, width=width)
            continue
        weights = coalition_weights([members for members in inside if members], known)
        errors = min(sums.held_out(weights, own=own).mean() for own in ((), (-1,)))
        found[key] = Partition(float(errors), segment.C, coalitions, kind, width)
    if not found:
        return None
    first = sorted(found.values(), key=lambda each: (each.error, len(each.coalitions)))[:SHORTLIST]
    judged = [replace(each, noisy=_noisy(each)) for each in first]
    return min(judged, key=lambda each: (each.error * (1 + OPTIMISM * each.noisy), len(each.coalitions)))


def _noisy(partition: Partition) -> float:
    """Return how far a partition may follow the noise of its distances; 1 where these were not resampled."""
    replicates = partition.distances.replicates
    if replicates is None or not len(replicates):
        return 1.0
    given = as_collaboration(partition.distances, partition.coalitions, partition.C)
    return min(1.0, UNSTEADY * (1 - steadiness(given, replicates[:DRAWS])))


def best_own_weights(
    distances: Sequence[Distances], sums: Sums, quantities: Mapping[str, int]
) -> tuple[float, float, Floats] | None:
    """Return the own weights with the lowest held-out error of the proxies, with that error and their C.

    Parameters
    ----------
    distances : sequence of Distances
        One or more kinds of distances between the clients, in the order of `quantities`.
    sums, quantities
        As in `best_partition`.

    Returns
    -------
    tuple or None
        Error, C, and weights in the order of `quantities`; None if some client has no sums, or the best weights are
        one of the two ends.
    """
    names = list(quantities)
    if tuple(names) != sums.names or len(names) < 3:
        return None
    masses = np.array([quantities[name] for name in names], dtype=np.float64)
    found: list[tuple[float, float, Floats]] = []
    for kind in distances:
        most = float(np.sqrt((masses * kind.matrix.max() ** 2).sum())) * 3 + 1e-9
        for C in np.geomspace(most / 300, most, STEPS):
            weights, _ = personal_weights(kind.matrix, masses, C=float(C))
            errors = min(sums.held_out(weights, own=own).mean() for own in ((), (-1,)))
            found.append((float(errors), float(C), weights))
    error, C, weights = min(found, key=lambda each: each[0])
    everyone = np.tile(masses / masses.sum(), (len(names), 1))
    for end in (everyone, np.eye(len(names))):
        if np.abs(weights - end).sum(axis=1).max() / 2 < SAME:
            return None
    return error, C, weights


def own_weights_plan(C: float, weights: Floats, names: Sequence[str], *, keep: tuple[str, ...] = INTERCEPT) -> Plan:
    """Return the plan of training with own weights, with clients of like rows sharing a model."""
    groups, shared = share_rows(weights, names, ROWS)
    return Plan("own weights", groups, "own-weights", {}, keep, C, shared)
