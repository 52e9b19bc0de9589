"""The charts of `.plot()` in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedcollab.coalitions import Collaboration
from fedcollab.distances import Distances
from fedcollab.report import charts, theme, training_charts
from fedcollab.report.charts import Chart
from fedcollab.report.notebook import client_names

if TYPE_CHECKING:
    from fedcollab.training import TrainingResult

#: width of a chart and side of a matrix, in pixels
WIDTH, SIDE = 560, 380


def plot_distances(distances: Distances, collaboration: Collaboration | None = None) -> Chart:
    """Draw the distance matrix, ordered by the coalitions where they are given."""
    labels = None if collaboration is None else collaboration.assignment
    return _styled(charts.matrix(distances, labels).properties(width=SIDE, height=SIDE))


def plot_collaboration(collaboration: Collaboration) -> Chart:
    """Draw each client's bound in two parts, against where it would be alone."""
    names = client_names(collaboration)
    rows = charts.bar_rows(
        names, collaboration.assignment, collaboration.terms, collaboration.C / np.sqrt(collaboration.quantities)
    )
    return _styled(charts.bounds(rows, len(names)).properties(width=WIDTH, height=240))


def plot_training(result: TrainingResult) -> Chart:
    """Draw each client's accuracy, in the order of the coalitions."""
    rank = charts.ordering(result.assignment)[1]
    rows = [
        {"name": name, "place": rank[i], "way": "in coalitions", "accuracy": float(value)}
        for i, (name, value) in enumerate(zip(result.names, result.reported, strict=True))
        if np.isfinite(value)
    ]
    return _styled(training_charts.gains(rows, len(rows), result.scores.task.score).properties(width=WIDTH, height=240))


def _styled(chart: Chart) -> Chart:
    """Return a chart with the report's colours and fonts, on white."""
    settings = {key: value for key, value in theme.config(theme.PRINT_INK).items() if value is not None}
    styled: Chart = chart.configure(**(settings | {"background": "white"}))
    return styled
