"""The lower envelope of all partitions' lines L = a C + b: which partition is best at which C, found by its corners.

Two neighbouring lines meet at some C. If nothing is better there, that is a corner of the envelope, else the better
line is taken in between (Eisner and Severance 1976). Up to `LISTED` units every corner is solved exactly. Beyond, what
is known already is looked at first, then the best partition in some trees of merged coalitions (merge.py), then what
moves reach from there and from the two partitions that meet; the first that is better is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fedcollab.coalitions.inputs import Labels
from fedcollab.coalitions.solver.exact import LISTED, SMALL, WIDEST, prove
from fedcollab.coalitions.solver.instance import Instance
from fedcollab.coalitions.solver.levels import combine, polish, score, search_best, search_levels
from fedcollab.coalitions.solver.local import best_of
from fedcollab.coalitions.solver.lower_bound import shared_bound
from fedcollab.coalitions.solver.merge import merge_tree
from fedcollab.coalitions.solver.moves import descend
from fedcollab.coalitions.solver.prices import Masks
from fedcollab.coalitions.solver.subsets import subset_lines

#: C at which the path is searched first, upwards and downwards
GRID = 16
#: partial coalitions that the proof of one corner may visit, rounds of prices, and the gap beyond which none is tried
BUDGET, ROUNDS, HOPELESS = 5_000, 25, 0.1
#: pairs sorted to know the gap
GAP_WORK = 200_000
#: trees that partitions of the path are taken from, by C over the middle of the limits
TREES = (1 / 27, 1 / 9, 1 / 3, 1.0)
#: a line must be lower than another by this, relatively, to count as better
LOWER = 1e-10


class Line(NamedTuple):
    """A partition of the units and its objective as a line in C."""

    slope: float
    intercept: float
    labels: Labels

    def at(self, C: float) -> float:
        """Return the objective of this partition at one C."""
        return self.slope * C + self.intercept


class Tracer:
    """Finds the lines of the envelope and which of its corners are proven."""

    def __init__(
        self, instance: Instance, restarts: int, seed: int, constrained: bool, limits: tuple[float, float]
    ) -> None:
        self.instance, self.restarts, self.seed, self.limits = instance, restarts, seed, limits
        middle = float(np.sqrt(limits[0] * limits[1]))
        self.lists = subset_lines(instance) if instance.count <= LISTED else None
        self.masks: list[Masks] = []
        self.found: list[Line] = []
        self.corners: dict[float, bool] = {}
        self.impossible = False
        few = instance.count <= LISTED
        self.trees = [] if few else [merge_tree(instance.at(middle * factor)) for factor in TREES]
        self.ends_proven = True
        self._ends(constrained)
        if not self.impossible:
            if not few:
                self._sweep(limits)
            self._trace()

    def challenge(self, C: float) -> bool:
        """Search at one C from scratch; return whether that beats the path, which is then traced again."""
        instance = self.instance.at(C)
        if self.lists is not None or instance.count < 2:
            return False
        return self._take(C, search_best(instance, "auto", self.restarts, self.seed))

    def prove(self, corners: list[float]) -> bool:
        """Prove corners until one fails; return whether that found something better: the path is then traced again."""
        if self.lists is not None or self.instance.count > WIDEST:
            return False
        for C in corners:
            if C in (0.0, np.inf) or self._proven(C):
                continue
            instance, known = self.instance.at(C), self._known(C)
            if shared_bound(instance, known.at(C), GAP_WORK) < known.at(C) * (1 - HOPELESS):
                return False
            proof = prove(instance, known.labels, BUDGET, masks=self.masks, rounds=ROUNDS)
            if proof.labels is not None and self._take(C, proof.labels):
                return True
            if not proof.optimal:
                return False
            self.corners[C] = True
        return False

    def envelope(self) -> Iterator[tuple[Line, float, float, bool]]:
        """Lines on the lower envelope with their interval, from C = 0 to infinity, and whether it is proven."""
        kept: list[Line] = []
        starts: list[float] = []
        for line in sorted(self.found, key=lambda each: (-each.slope, each.intercept)):
            start = 0.0
            while kept:
                gain = kept[-1].slope - line.slope
                if gain <= 1e-12 * kept[-1].slope:
                    if line.intercept >= kept[-1].intercept:
                        break
                    start = 0.0
                else:
                    start = max(0.0, (line.intercept - kept[-1].intercept) / gain)
                if start > starts[-1] * (1 + 1e-12) and start > 0:
                    break
                kept.pop()
                starts.pop()
            else:
                start = 0.0
            if not kept or line.slope < kept[-1].slope * (1 - 1e-12):
                kept.append(line)
                starts.append(start)
        for line, low, high in zip(kept, starts, [*starts[1:], np.inf], strict=True):
            yield line, low, high, all(self._proven(C) for C in (low, high))

    def _line(self, labels: Labels) -> Line:
        """Return the line of a partition."""
        return Line(*self.instance.lines(labels), labels)

    def _take(self, C: float, labels: Labels) -> bool:
        """Add a partition if it is better at this C than all others, and trace the path again around it."""
        line = self._line(labels)
        if not self.instance.admits(labels) or not line.at(C) < self._known(C).at(C) * (1 - LOWER):
            return False
        self.found.append(line)
        self._trace()
        return True

    def _ends(self, constrained: bool) -> None:
        """Find the partitions for C = 0 and C = infinity: known, or solved for where constraints are in the way."""
        count = self.instance.count
        if not constrained:
            self.found = [self._line(np.arange(count)), self._line(np.zeros(count, dtype=np.int64))]
            return
        for C in (0.0, 1e6 * float(np.sqrt(self.instance.masses.sum()))):
            instance = self.instance.at(C)
            if self.lists is not None:
                labels, proven = self._solved(C, [np.arange(count)])
            else:
                labels, proven = search_levels(instance, 3, self.seed), False
                labels = best_of(instance, [labels, *(line.labels for line in self.found)])
                self.impossible |= not instance.admits(labels)
            self.ends_proven &= proven
            self.found.append(self._line(labels))

    def _sweep(self, limits: tuple[float, float]) -> None:
        """Search at a grid of C within the limits, upwards and downwards, each from what was found at the last."""
        grid = np.geomspace(*limits, GRID)
        for values in (grid, grid[::-1]):
            for C in values.tolist():
                instance, known = self.instance.at(C), self._known(C)
                grown, finer = self._grown(C)
                labels = combine(instance, known.labels, polish(instance, grown, [finer]))
                if instance.admits(labels):
                    self.found.append(self._line(labels))

    def _trace(self) -> None:
        """Search at every corner of the envelope as it is known, until nothing better is found at any of them."""
        searched = -1
        while searched:
            lines = [line for line, *_ in self.envelope()]
            searched = 0
            for left, right in pairwise(lines):
                corner = (right.intercept - left.intercept) / (left.slope - right.slope)
                if corner in self.corners:
                    continue
                searched += 1
                proven = False
                if self.lists is not None:
                    labels, proven = self._solved(corner, [left.labels, right.labels])
                    best = self._line(labels)
                else:
                    best = self._searched(corner, left, right)
                if best.at(corner) >= left.at(corner) * (1 - LOWER):
                    self.corners[corner] = proven
                else:
                    self.found.append(best)

    def _solved(self, C: float, starts: list[Labels]) -> tuple[Labels, bool]:
        """Return the best partition at one C by a proof, and whether the proof was completed."""
        instance = self.instance.at(C)
        known = best_of(instance, [*(line.labels for line in self.found), *starts])
        if instance.count > SMALL:
            known = best_of(instance, [known, *(descend(instance, start) for start in starts)])
        proof = prove(instance, known, BUDGET, self.lists, self.masks)
        self.impossible |= proof.labels is None
        return known if proof.labels is None else proof.labels, proof.optimal

    def _searched(self, C: float, left: Line, right: Line) -> Line:
        """Return a better partition at the C where two lines meet, the first that is found; else one of the two."""
        needed = left.at(C) * (1 - LOWER)
        known = self._known(C)
        if known.at(C) < needed:
            return known
        instance = self.instance.at(C)
        grown, finer = self._grown(C)
        inside = self.limits[0] <= C <= self.limits[1]
        for start in (grown, left.labels, right.labels) if inside else (grown,):
            line = self._line(polish(instance, start, [finer] if inside else []))
            if line.at(C) < needed and instance.admits(line.labels):
                return line
        return left

    def _grown(self, C: float) -> tuple[Labels, Labels]:
        """Return the best partition in the trees at one C, and a finer one of the same tree."""
        instance = self.instance.at(C)
        grown = [(tree, tree.best(instance)) for tree in self.trees]
        tree, labels = min(grown, key=lambda each: score(instance, each[1]))
        return labels, tree.best(instance.at(C / 2))

    def _known(self, C: float) -> Line:
        """Return the best partition at one C of those found so far."""
        return min(self.found, key=lambda line: line.at(C))

    def _proven(self, C: float) -> bool:
        """Return whether the optimum is proven at one C."""
        if C in (0.0, np.inf):
            return self.ends_proven
        return any(proven and abs(corner - C) <= 1e-9 * C for corner, proven in self.corners.items())
