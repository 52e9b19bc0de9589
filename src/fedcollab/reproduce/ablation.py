"""Ablation: the solver without the quantities, and without the distances."""

from __future__ import annotations

from fedcollab.reproduce.accuracy import FEDCOLLAB, AccuracyTable, Method


class Ablation(AccuracyTable):
    """Quantities replaced by equal ones, distances by their mean; the data stay as they are."""

    name = "ablation"
    title = "Ablation: what quantities and distances contribute"
    place = "Table 3, Section 5.5 (RQ4)"
    time = "20 min"
    scenarios = ("label-shift",)
    rows = (
        FEDCOLLAB,
        Method("ignore-quantities", "Ignore quantities", "fedavg", "ignore-quantities", main=True),
        Method("ignore-distances", "Ignore distances", "fedavg", "ignore-distances", main=True),
    )
    shows_coalitions = True
