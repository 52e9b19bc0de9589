"""What the slider over C shows: every answer along the path, computed here so that the page only looks it up.

For segment s with coalitions S and its representative C, client i's bound is

    C / sqrt(m_S) + sum_{j in S} m_j D_ij / m_S          (too little data + unlike partners)

and over all clients these sum to the objective. The first part needs only C and the samples of S; the second is kept
per client, in ten-thousandths.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.advice.fit import BoundFit
from fedcollab.coalitions.objective import own_sums, terms
from fedcollab.distances import Distances
from fedcollab.report.words import figure

if TYPE_CHECKING:
    from fedcollab.coalitions import Collaboration, CPath

#: segments times clients that a page carries; beyond, the narrowest segments are left out
MOST = 40_000
#: how far beyond the outermost change of coalitions the ends of the scale are drawn
MARGIN = 3.0
#: shift terms are kept as whole ten-thousandths
DIGITS = 10_000


def slider(
    distances: Distances,
    path: CPath,
    collaboration: Collaboration | None,
    fit: BoundFit | None = None,
    loss: str = "log loss",
) -> dict[str, Any]:
    """Return the data of the slider over C: one entry for each segment, and where the suggested and the run's C lie.

    Parameters
    ----------
    distances : Distances
        The distances.
    path : CPath
        The coalitions for every C.
    collaboration : Collaboration or None
        The run's answer, if there is one.
    fit : BoundFit, optional
        The bound fitted to what was measured: then every segment has the mean gain in loss that it predicts.
    loss : str
        What the loss is called.
    """
    segments = list(path)
    matrix, quantities = distances.matrix, distances.quantities.astype(np.float64)
    count = len(quantities)
    ends = _ends(segments)
    wanted = path.suggested
    suggested = next(i for i, segment in enumerate(segments) if segment.c_low == wanted.c_low)
    chosen = None if collaboration is None else _position(segments, collaboration)
    keep = _widest(segments, {0, len(segments) - 1, suggested, chosen}, ends, max(2, MOST // count))
    together = np.zeros(count, dtype=np.int64)
    apart = np.arange(count)
    shown = []
    for position in keep:
        segment = segments[position]
        C, labels = _representative(segment, ends), np.asarray(segment.assignment, dtype=np.int64)
        if position == chosen and collaboration is not None:
            C = collaboration.C
        shown.append(
            {
                "C": C,
                "left": max(segment.c_low, ends[0]),
                "right": min(segment.c_high, ends[1]),
                "words": _range(segment.c_low, segment.c_high),
                "count": int(labels.max()) + 1,
                "labels": labels.tolist(),
                "shift": _shift(matrix, quantities, labels),
                "objective": {
                    way: round(float(bound_terms(matrix, quantities, partition, C).sum()), 6)
                    for way, partition in (("path", labels), ("everyone", together), ("nobody", apart))
                },
                "proven": segment.proven,
                "gain": _gain(fit, labels, matrix, quantities),
            }
        )
    return {
        "segments": shown,
        "suggested": keep.index(suggested),
        "chosen": None if chosen is None else keep.index(chosen),
        "everyone": _shift(matrix, quantities, together),
        "everyone_gain": _gain(fit, together, matrix, quantities),
        "left_out": len(segments) - len(keep),
        "loss": loss,
        "answer": None if collaboration is None else collaboration.assignment.tolist(),
    }


def bound_terms(
    matrix: NDArray[np.float64], quantities: NDArray[np.float64], labels: NDArray[np.int64], C: float
) -> NDArray[np.float64]:
    """Return each client's two parts of the bound, N x 2; they sum to the objective.

    Parameters
    ----------
    matrix : array
        The distances, N x N.
    quantities : array
        Each client's training samples.
    labels : array of int
        Each client's coalition.
    C : float
        Weight of the generalisation term.
    """
    return terms(quantities, labels, own_sums(matrix, quantities, labels), C)


def packed(values: NDArray[np.float64] | None) -> list[int | None] | None:
    """Return a symmetric matrix for the page: its upper triangle row by row, in thousandths; None where not known."""
    if values is None:
        return None
    upper = values[np.triu_indices(len(values), 1)]
    return [round(1000 * value) if np.isfinite(value) else None for value in upper.tolist()]


def _gain(
    fit: BoundFit | None, labels: NDArray[np.int64], matrix: NDArray[np.float64], quantities: NDArray[np.float64]
) -> float | None:
    """Return the mean gain in loss over training alone that the fitted bound predicts, if it tells anything."""
    if fit is None or not fit.tells:
        return None
    return round(float(fit.partition_gain(labels, matrix, quantities).mean()), 4)


def _position(segments: list[Any], collaboration: Collaboration) -> int | None:
    """Return the segment that is the run's answer; None where the path lacks it (made under other constraints)."""
    for position, segment in enumerate(segments):
        here = segment.c_low <= collaboration.C <= segment.c_high
        if here and np.array_equal(segment.assignment, collaboration.assignment):
            return position
    return None


def _shift(matrix: NDArray[np.float64], quantities: NDArray[np.float64], labels: NDArray[np.int64]) -> list[int]:
    """Return each client's part of the bound for unlike partners, in ten-thousandths."""
    return [int(value) for value in np.rint(DIGITS * bound_terms(matrix, quantities, labels, 0.0)[:, 1])]


def _widest(segments: list[Any], always: set[int | None], ends: tuple[float, float], most: int) -> list[int]:
    """Return the positions of the segments to show: all, or the widest on the logarithmic scale."""
    if len(segments) <= most:
        return list(range(len(segments)))
    width = [math.log(min(s.c_high, ends[1]) / max(s.c_low, ends[0])) for s in segments]
    ranked = sorted(range(len(segments)), key=lambda i: (i not in always, -width[i]))
    return sorted(ranked[:most])


def _ends(segments: list[Any]) -> tuple[float, float]:
    """Return where the scale of C is cut: beyond every change of coalitions and every segment's own C."""
    inner = [edge for segment in segments for edge in (segment.c_low, segment.c_high) if 0 < edge < math.inf]
    own = [segment.C for segment in segments if 0 < segment.C < math.inf]
    low, high = min([*inner, *own], default=1.0), max([*inner, *own], default=1.0)
    return low / MARGIN, high * MARGIN


def _representative(segment: Any, ends: tuple[float, float]) -> float:
    """Return the segment's own C, else its middle on the logarithmic scale."""
    if 0 < segment.C < math.inf:
        return float(segment.C)
    return math.sqrt(max(segment.c_low, ends[0]) * min(segment.c_high, ends[1]))


def _range(low: float, high: float) -> str:
    """Return an interval of C as text."""
    if low <= 0 and high == math.inf:
        return "any"
    if low <= 0:
        return f"below {figure(high)}"
    return f"above {figure(low)}" if high == math.inf else f"{figure(low)} to {figure(high)}"
