"""Compared runs on the terminal: what differs, who moved, and what that changed, client by client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from fedcollab.report.terminal import LISTED, console, plain_table
from fedcollab.report.words import amount, interval, measure, range_of_names, signed
from fedcollab.runs.run import WAYS
from fedcollab.uncertainty import BETTER, LEVEL, UNKNOWN, WORSE, Estimate

if TYPE_CHECKING:
    from fedcollab.report.compared import ComparedRuns
    from fedcollab.tasks import Task
    from fedcollab.uncertainty import Estimates

#: characters of a setting's value that are shown
LONGEST = 40


def show_compared(compared: ComparedRuns) -> None:
    """Print compared runs.

    Parameters
    ----------
    compared : ComparedRuns
        The runs.
    """
    shown = console()
    count = len(compared.names)
    for number, label in enumerate(compared.labels, 1):
        shown.print(f"[bold]{number}[/bold]  {escape(label)}")
    settings = compared.settings()
    if settings:
        table = plain_table("setting", *_numbers(compared))
        for key, values in settings.items():
            table.add_row(escape(key.replace("_", " ")), *map(escape, _cells(values)))
        shown.print()
        shown.print(table)
    shown.print()
    if not settings:
        shown.print("The settings are the same.")
    groups = [compared.groups(place) for place in range(len(compared.runs))]
    for number, members in enumerate(groups, 1):
        texts = [f"({range_of_names(group)})" for group in members] or ["no coalitions yet"]
        shown.print(escape(f"{number}: {'  '.join(texts)}"))
    for number, (changed, moved) in enumerate(zip(compared.data_changed(), compared.moved(), strict=True), 2):
        data = "the clients have the same data"
        if changed:
            whose = "all clients" if len(changed) == count else range_of_names(changed)
            data = f"the data of {whose} are not those of run 1, or were read otherwise"
        who = f"{range_of_names(moved)} moved" if moved else "nobody moved"
        shown.print(escape(f"From 1 to {number}: {data}; {who}."))
    for place in range(1, len(groups)):
        if compared.difference(place) is None:
            shown.print(f"1 and {place + 1} are not both trained {WAYS[compared.way]}: no figures to compare.")
            continue
        shown.print()
        shown.print(_measured(compared, place))
        shown.print(escape(verdict(compared, place)))
    if any(result is not None for result in compared.results):
        shown.print(escape(how_measured(compared)))


def _measured(compared: ComparedRuns, place: int) -> Table:
    """Return the accuracies and gains over training alone of the first run and another, and the differences."""
    columns: list[tuple[str, Estimates, Callable[[Estimate], str]]] = []
    label = _task(compared).score
    for which in (0, place):
        accuracy, gain = compared.accuracy(which), compared.gain_over_alone(which)
        columns += [] if accuracy is None else [(f"{which + 1}: {label}", accuracy, _share)]
        columns += [] if gain is None else [(f"{which + 1}: gain", gain, _gain)]
    difference = compared.difference(place)
    columns += [] if difference is None else [(f"{place + 1} − 1", difference, _gain)]
    table = plain_table("client", *(heading for heading, _, _ in columns))
    for client in _listed(compared, place):
        table.add_row(escape(compared.names[client]), *(words(found[client]) for _, found, words in columns))
    table.add_row("mean", *(words(found.average) for _, found, words in columns), style="bold")
    return table


def _task(compared: ComparedRuns) -> Task:
    """Return what the models of the runs predict, and what the figures are called."""
    return next(result.scores.task for result in compared.results if result is not None)


def _listed(compared: ComparedRuns, place: int) -> list[int]:
    """Return the clients that are shown: all, or of many those that differ most in either direction."""
    found = compared.difference(place)
    if len(compared.names) <= LISTED or found is None:
        return list(range(len(compared.names)))
    order = np.argsort(-np.nan_to_num(found.mean), kind="stable").tolist()
    return [*order[: LISTED // 2], *order[-(LISTED // 2) :]]


def verdict(compared: ComparedRuns, place: int) -> str:
    """Return a sentence on how a run differs from the first one.

    Parameters
    ----------
    compared : ComparedRuns
        The runs.
    place : int
        Which run.
    """
    found, loss = compared.difference(place), compared.difference(place, "loss")
    if found is None or loss is None:
        return ""
    known = sum(word != UNKNOWN for word in found.verdicts)
    better, worse = found.count(BETTER), found.count(WORSE)
    mean, by = found.average, loss.average.mean
    task = _task(compared)
    average = f"{signed(mean.mean)} {task.points} ({interval(mean)})"
    counted = f"{better or 'none'} of {known} clients clearly better, {worse or 'none'} clearly worse"
    text = f"{place + 1} against 1: {counted if known else 'single clients have too few test rows to tell'}. "
    lower = f"{'lower' if by >= 0 else 'higher'} by {measure(abs(by), 1, '', 3)}"
    text += f"On average {average}; {task.loss} {lower}. "
    if compared.labels[place] in compared.paired:
        return text + "Differences are paired: both were tested on the same rows."
    return text + "Differences are not paired, as if the test rows were others, so that their intervals are wide."


def how_measured(compared: ComparedRuns) -> str:
    """Return what the figures are.

    Parameters
    ----------
    compared : ComparedRuns
        The runs.
    """
    points = _task(compared).points
    text = f"In brackets: {100 * LEVEL:.0f} % intervals. Gain: {points} over training alone in the same run."
    if len(compared.names) > LISTED:
        text += f" Of {len(compared.names)} clients the {LISTED} that differ most; all: --json."
    return text


def _numbers(compared: ComparedRuns) -> list[str]:
    """Return what the runs are called in headings."""
    return [str(number) for number in range(1, len(compared.runs) + 1)]


def _cells(values: list[Any]) -> list[str]:
    """Return a setting's values as short texts; of lists, what is not in all of them."""
    if all(isinstance(value, (list, tuple)) for value in values):
        common = set.intersection(*(set(map(str, value)) for value in values))
        values = [[part for part in map(str, value) if part not in common] for value in values]
    return [_short(value) for value in values]


def _short(value: Any) -> str:
    """Return one value as a short text."""
    if isinstance(value, Mapping):
        value = [f"{key} = {each}" for key, each in value.items()]
    text = (", ".join(map(str, value)) or "–") if isinstance(value, (list, tuple)) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _share(found: Estimate) -> str:
    """Return an accuracy, or R2, in percent."""
    return "–" if np.isnan(found.mean) else f"{amount(found.mean)} %"


def _gain(found: Estimate) -> str:
    """Return a difference in points, with its interval where it is known."""
    if np.isnan(found.mean):
        return "–"
    ends = "" if np.isnan(found.low) else f" ({signed(found.low)} to {signed(found.high)})"
    return f"{signed(found.mean)}{ends}"
