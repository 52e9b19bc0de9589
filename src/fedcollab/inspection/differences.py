"""Which columns tell two clients apart: the total variation distance of each column's distribution, from aggregates.

    d(P, Q) = 1/2 sum_v |P(v) - Q(v)|          over the categories v, "missing" among them
    d(P, Q) = 1/2 (|p - q| + integral |(1 - p) f - (1 - q) g|)     p, q: shares that are missing; f, g: normal densities

Categories that fewer rows have than a silo sends are taken together. The distance of two samples is above 0 by chance:
with k free numbers and n and m rows, by at most sqrt(k (1/n + 1/m) / (2 pi)) in the mean. A column is named where its
distance is more than twice that.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedcollab.wire.message import Message

#: a smaller distance is not worth naming
LEAST = 0.05
#: stands for the labels where a column's name is expected
LABEL = "label"


@dataclass(frozen=True)
class Difference:
    """How different one column is at two clients.

    Parameters
    ----------
    column : str
        The column, or "label" for the labels.
    distance : float
        From 0 (alike) to 1 (nothing in common).
    """

    column: str
    distance: float


def column_differences(first: Message, second: Message) -> tuple[Difference, ...]:
    """Return the columns in which two clients differ by more than chance, the most different first.

    Parameters
    ----------
    first, second : dict
        What the two clients said about their data.

    Returns
    -------
    tuple of Difference
        Columns that both have, and the labels.
    """
    n, m = int(first["quantity"]), int(second["quantity"])
    theirs = {column["name"]: column for column in second["columns"]}
    found = [(LABEL, *_by_category(first["labels"], n, second["labels"], m))]
    if "target" in first and "target" in second:
        found = [(LABEL, *_distance(first["target"], n, second["target"], m))]
    for column in first["columns"]:
        other = theirs.get(column["name"])
        if other is not None:
            found.append((column["name"], *_distance(column, n, other, m)))
    named = [
        Difference(name, round(min(distance, 1.0), 3))
        for name, distance, free in found
        if distance >= LEAST and distance > 2 * math.sqrt(free * (1 / n + 1 / m) / (2 * math.pi))
    ]
    return tuple(sorted(named, key=lambda each: (-each.distance, each.column)))


def _distance(a: Mapping[str, Any], n: int, b: Mapping[str, Any], m: int) -> tuple[float, int]:
    """Return the distance of a column at two clients, and the free numbers that it was computed from."""
    p, q = 1 - a["present"] / n, 1 - b["present"] / m
    kinds = {a["kind"], b["kind"]} - {"empty"}
    if p == 1 or q == 1:
        return abs(p - q), 1
    if kinds == {"numeric"} and not (a["categories"] and b["categories"]):
        if a["mean"] is None or b["mean"] is None:
            return 0.0, 1
        return _normal_distance(1 - p, a["mean"], a["std"], 1 - q, b["mean"], b["std"]) + abs(p - q) / 2, 3
    if len(kinds) > 1 or not (a["categories"] or b["categories"]):
        return 0.0, 1
    return _by_category({**a["categories"], "\0": n - a["present"]}, n, {**b["categories"], "\0": m - b["present"]}, m)


def _by_category(a: Mapping[str, int], n: int, b: Mapping[str, int], m: int) -> tuple[float, int]:
    """Return the distance of two distributions over categories; what is not counted is one category more."""
    values = {*a, *b}
    shares = [(a.get(value, 0) / n, b.get(value, 0) / m) for value in values]
    shares.append((1 - sum(share for share, _ in shares), 1 - sum(share for _, share in shares)))
    return sum(abs(p - q) for p, q in shares) / 2, max(1, sum(p + q > 1e-12 for p, q in shares) - 1)


def _normal_distance(v: float, mean_a: float, std_a: float, w: float, mean_b: float, std_b: float) -> float:
    """Return 1/2 integral |v f - w g| of two normal densities: exact, by the points where they are equal."""
    least = 1e-9 * max(abs(mean_a), abs(mean_b), std_a, std_b, 1e-300)
    std_a, std_b = max(std_a, least), max(std_b, least)
    # log(v f) - log(w g) is a parabola alpha x^2 + beta x + gamma, in units of std_a around mean_a
    ratio, shift = std_a / std_b, (mean_b - mean_a) / std_a
    alpha, beta = (ratio**2 - 1) / 2, -(ratio**2) * shift
    gamma = math.log(v / w / ratio) + ratio**2 * shift**2 / 2
    cuts = sorted(_roots(alpha, beta, gamma))

    def difference(x: float) -> float:
        return v * _normal(x) - w * _normal(ratio * (x - shift))

    ends = [0.0, *map(difference, cuts), v - w]
    return sum(abs(high - low) for low, high in itertools.pairwise(ends)) / 2


def _roots(alpha: float, beta: float, gamma: float) -> list[float]:
    """Return the real roots of alpha x^2 + beta x + gamma."""
    if abs(alpha) < 1e-12:
        return [-gamma / beta] if beta else []
    root = beta * beta - 4 * alpha * gamma
    if root <= 0:
        return []
    larger = -(beta + math.copysign(math.sqrt(root), beta)) / 2  # without cancellation
    return [larger / alpha, gamma / larger] if larger else [0.0]


def _normal(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))
