"""Every figure of every client as a table with a row a client, to go on with in a spreadsheet: clients.csv.

For each way of training (`local`, `global`, `coalitions`) there are all measures of the model that the client would
use, and the gain in accuracy (of a numeric target in R2) and in loss over the ways before it, with standard error, ends
of the interval and what the interval says. What was expected by the advice begins with `expected_`. An empty cell is
not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcollab.advice.words import how_in_words

if TYPE_CHECKING:
    from fedcollab.report.judgement import Judgement
    from fedcollab.report.run import RunContents
    from fedcollab.uncertainty import Estimates

Columns = dict[str, list[Any]]


def client_columns(run: RunContents, models: Mapping[str, str] | None = None) -> Columns:
    """Return the columns of the table, each with one value a client, in the order of the run's clients.

    Parameters
    ----------
    run : RunContents
        The run.
    models : mapping of str to str, optional
        The name of the file with each client's model.
    """
    names = list(run.names)
    columns: Columns = {"client": names}
    if run.collaboration is not None:
        numbers = run.collaboration.assignment.tolist()
        columns["coalition"] = [number + 1 for number in numbers]
        columns["coalition_clients"] = [numbers.count(number) for number in numbers]
    columns["training_rows"] = run.distances.quantities.astype(int).tolist()
    judgement = run.judgement
    if judgement is not None:
        columns["test_rows"] = [int(count) if np.isfinite(count) else "" for count in judgement.comparison.samples]
    if models is not None:
        columns["model"] = [models.get(name, "") for name in names]
    if run.advice is not None:
        for metric in ("accuracy", "loss"):
            columns |= _expected(run, metric)
    for way in () if judgement is None else judgement.results:
        columns |= _measured(run, judgement, way)  # type: ignore[arg-type]
    return columns


def _expected(run: RunContents, metric: str) -> Columns:
    """Return what the advice expects each client to gain over training alone."""
    assert run.advice is not None
    found = [getattr(run.advice.gains[name], metric) for name in run.names]
    ends = [each.interval() for each in found]
    parts = {
        "": [each.mean for each in found],
        "_stderr": [each.stderr for each in found],
        "_low": [low for low, _ in ends],
        "_high": [high for _, high in ends],
        "_probability": [each.probability for each in found],
    }
    key = run.advice.task.key if metric == "accuracy" else metric
    return {f"expected_{key}_gain{part}": _cells(values) for part, values in parts.items()}


def _measured(run: RunContents, judgement: Judgement, way: str) -> Columns:
    """Return all measures of one way of training, and the gains over others."""
    result = judgement.results[way]
    where = {name: place for place, name in enumerate(result.names)}
    there = [name in where for name in run.names]
    how = how_in_words(result.method, result.settings.get("keep") or ())
    rounds = [result.rounds[result.assignment[where[name]]] if name in where else "" for name in run.names]
    columns: Columns = {f"{way}_algorithm": [how if known else "" for known in there], f"{way}_rounds": rounds}
    columns |= {f"{way}_{key}": _cells(judgement.column(way, key)) for key in result.used if key != "samples"}
    accuracy, score = judgement.accuracy(way), f"{way}_{result.scores.task.key}"
    columns |= {f"{score}_low": _cells(accuracy.low), f"{score}_high": _cells(accuracy.high)}
    for other in ("local", "global"):
        if other in judgement.results and way not in ("local", other):
            columns |= _gain(f"{way}_gain_over_{other}", judgement.gain(way, other))
            columns |= _gain(f"{way}_loss_gain_over_{other}", judgement.loss_gain(way, other))
    return columns


def _gain(name: str, found: Estimates) -> Columns:
    """Return one gain of every client: figure, standard error, interval, and what the interval says."""
    parts = {"": found.mean, "_stderr": found.stderr, "_low": found.low, "_high": found.high}
    return {**{f"{name}{part}": _cells(values) for part, values in parts.items()}, f"{name}_verdict": found.verdicts}


def _cells(values: Iterable[float]) -> list[Any]:
    """Return figures as they stand in cells: nothing where one is not known."""
    return [float(value) if np.isfinite(value) else "" for value in values]
