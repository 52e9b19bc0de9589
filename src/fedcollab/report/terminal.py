"""What a person sees on the terminal: the answer first, in words, then the figures."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedcollab.report.advised import gain_table_rows, gain_unit
from fedcollab.report.judgement import Judgement
from fedcollab.report.words import amount, answer_sentence, coalition_line, measure, plus_minus, range_of_names, signed
from fedcollab.runs.run import WAYS
from fedcollab.uncertainty import LEVEL
from fedcollab.wire import absence
from fedcollab.wire.absence import words

if TYPE_CHECKING:
    from fedcollab.advice.result import Advice
    from fedcollab.distances import Distances
    from fedcollab.runs.fitted import Fitted
    from fedcollab.scenarios import Scenario
    from fedcollab.training import TrainingResult


#: clients up to which each one's expected gain is printed
LISTED = 30
#: clients that stay alone up to which each has a line of its own
SINGLES = 6
#: a terminal with fewer columns shows the table of gains without its less needed figures
WIDE = 100


def console() -> Console:
    """Return a console with colour only on a terminal, and without wrapping at 80 columns in a pipe."""
    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=110)


def plain_table(*headings: str, right: Collection[str] | None = None, **settings: Any) -> Table:
    """Return a table that has headings alone, in the style of all tables on the terminal.

    Parameters
    ----------
    *headings : str
        The headings of the columns.
    right : collection of str, optional
        Those of them whose columns are flush right; all but the first one if it is not given.
    **settings
        Further settings of every column, as `rich.table.Table.add_column` takes them.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, heading in enumerate(headings):
        flush = place > 0 if right is None else heading in right
        table.add_column(heading, justify="right" if flush else "left", **settings)
    return table


def unmeasured(results: Mapping[str, TrainingResult], ways: Mapping[str, str] = WAYS) -> list[str]:
    """Return a sentence for each way of training at whose end clients did not answer, so that figures lack them.

    Parameters
    ----------
    results : mapping of TrainingResult
        What was trained, by way of training.
    ways : mapping of str
        What each way is called (see `ways.way_words`).
    """
    lines = []
    for way, result in results.items():
        missing = [name for name, value in zip(result.names, result.reported, strict=True) if math.isnan(value)]
        if missing:
            lines.append(
                f"{range_of_names(missing)} did not answer at the end of training {ways.get(way, way)}: its figures, "
                f"IPR and RSD are of {len(result.names) - len(missing)} of {len(result.names)} clients."
            )
    return lines


def show_demo_start(scenario: Scenario) -> None:
    """Print what the demo's clients are.

    Parameters
    ----------
    scenario : Scenario
        The clients.
    """
    shown = console()
    sizes = sorted({client.quantity for client in scenario.clients}, reverse=True)
    shown.print("[bold]Who should train with whom?[/bold]")
    shown.print(
        f"{len(scenario.clients)} clients want to recognise handwritten digits. Each sees only some of the ten digits; "
        f"half of them have {sizes[0]} images, half only {sizes[-1]}.\n"
        "Nobody shows its data to anyone: every pair trains a small model that tries to tell the two apart.\n"
    )


def show_run(fitted: Fitted, judgement: Judgement, page: Path, next_command: str) -> None:
    """Print what contradicts the answer, the coalitions, what was gained and how sure that is, and what to do next.

    Parameters
    ----------
    fitted : Fitted
        The answer before training.
    judgement : Judgement
        What the trainings mean.
    page : Path
        The report, in the run directory.
    next_command : str
        The command that is suggested at the end.
    """
    shown = console()
    collaboration = fitted.collaboration
    quantities = dict(zip(fitted.distances.names, fitted.distances.quantities.tolist(), strict=True))
    shown.print()
    for line in judgement.contradictions():
        shown.print(f"[bold red]Not confirmed by training.[/bold red] {escape(line)}")
    advice = fitted.saved_advice
    if advice is not None:
        first, *others = str(advice).splitlines()
        shown.print(f"[bold]{escape(first)}[/bold]")
        for line in others:
            shown.print(escape(line))
    else:
        shown.print(f"[bold]{escape(answer_sentence(collaboration, fitted.distances.names))}[/bold]")
    singles = [members[0] for members in collaboration.coalitions if len(members) == 1]
    for number, members in enumerate(collaboration.coalitions, 1):
        if len(members) > 1 or len(singles) <= SINGLES:
            shown.print(f"  {number}. {escape(coalition_line(members, quantities))}")
    if len(singles) > SINGLES:
        shown.print(f"  Alone: {escape(coalition_line(singles, quantities))}")
    shown.print()
    narrow = shown.width < WIDE
    shown.print(gain_table(judgement, narrow=narrow))
    for line in verdict(judgement, narrow=narrow):
        shown.print(escape(line))
    for line in judgement.remarks():
        shown.print(f"[bold]Note[/bold]: {escape(line)}")
    for way, result in judgement.results.items():
        for reason in result.stopped.values():
            shown.print(f"[bold]Note[/bold] ({judgement.ways[way]}): {escape(reason)}")
    for line in [*unmeasured(judgement.results, judgement.ways), *words(absence.read(page.parent))]:
        shown.print(f"[bold]Note[/bold]: {escape(line)}")
    shown.print(f"\nReport:  {escape(str(page))}\nNext:    {escape(next_command)}")


def show_advice(advice: Advice) -> None:
    """Print an advice: the verdict, what it is expected to bring, and each client's gain where there are few.

    Parameters
    ----------
    advice : Advice
        The advice.
    """
    shown = console()
    first, *others = str(advice).splitlines()
    shown.print(f"[bold]{escape(first)}[/bold]")
    for line in others:
        shown.print(escape(line))
    names = list(advice.names)
    if advice.candidate.kind == "alone":
        return
    if len(names) > LISTED:
        order = sorted(names, key=lambda name: -advice.gains[name].accuracy.mean)
        names = [*order[: LISTED // 2], *order[-(LISTED // 2) :]]
        shown.print(f"The {LISTED // 2} clients that gain most and least, of {len(advice.names)}:")
    table = plain_table("client", f"expected gain ({gain_unit(advice)})", "80 % interval", "probability of gaining")
    for name, *cells in gain_table_rows(advice, names):
        table.add_row(escape(name), *cells)
    shown.print(table)


def gain_table(judgement: Judgement, *, narrow: bool = False) -> Table:
    """Return a table with the figures of every way of training, means over clients, and the most frequent class.

    Parameters
    ----------
    judgement : Judgement
        What the trainings mean.
    narrow : bool
        Leave out RSD and the further measures, so that 80 columns are enough.
    """
    task = judgement.task
    further = [] if narrow else list(task.further)
    spread = [] if narrow else ["RSD"]
    headings = ("training", task.score, "gain", "IPR", *spread, "worst client", *(f.short for f in further), task.loss)
    table = plain_table(*headings, no_wrap=narrow)
    figures = judgement.figures()["results"]
    for way in judgement.results:
        accuracy, found = judgement.accuracy(way), figures[way]
        gains = ["", "", *("" for _ in spread)]
        if "local" in judgement.results and way != "local":
            gain = judgement.gain(way).average
            gains = [f"{signed(gain.mean)}{plus_minus(gain)}", measure(found["ipr"], 100, " %", 0)]
            gains += [measure(found["rsd"], 100, "", 1) for _ in spread]
        measured = [each.text(found[f"mean_{each.key}"]) for each in further]
        table.add_row(
            judgement.ways.get(way, way),
            f"{amount(accuracy.average.mean)}{plus_minus(accuracy.average)} %",
            *gains,
            f"{amount(np.nanmin(accuracy.mean))} %",  # without those who did not answer at the end
            *measured,
            measure(found["mean_loss"], 1, "", 3),
            style="bold" if way == "coalitions" else None,
        )
    if judgement.majority is not None:
        mean = judgement.majority.average
        table.add_row(task.constant_short, f"{amount(mean.mean)}{plus_minus(mean)} %", style="dim")
    return table


def verdict(judgement: Judgement, *, narrow: bool = False) -> list[str]:
    """Return lines that say what the figures of `gain_table` mean.

    Parameters
    ----------
    judgement : Judgement
        What the trainings mean.
    narrow : bool
        Whether the table is the narrow one.
    """
    key = f"Means over clients; ±: {100 * LEVEL:.0f} % interval. Gain: {judgement.task.points} over training alone; "
    key += "IPR: share of clients with one" + ("." if narrow else "; RSD: how unequal gains are.")
    return [key, *judgement.sentences(), *filter(None, [judgement.lengths()])]


def show_distances(distances: Distances, next_command: str) -> None:
    """Print the distance matrix, or its range where there are many clients.

    Parameters
    ----------
    distances : Distances
        The distances.
    next_command : str
        The command that is suggested at the end.
    """
    shown = console()
    matrix, names = distances.matrix, distances.names
    off = ~np.eye(len(names), dtype=bool)
    missing = int((~distances.observed[off]).sum()) // 2
    if missing:
        pairs = "1 pair" if missing == 1 else f"{missing} pairs"
        shown.print(f"{pairs} could not be measured: later, the same command with --resume measures them.")
        off &= distances.observed
    if not off.any():
        return
    shown.print(
        f"Distances of {len(names)} clients (0: alike, 1: nothing in common), "
        f"method {distances.method}: from {matrix[off].min():.2f} to {matrix[off].max():.2f}."
    )
    if len(names) <= 12:
        table = plain_table("", *map(escape, names))
        for position, name in enumerate(names):
            seen = [i != position and bool(known) for i, known in enumerate(distances.observed[position])]
            cells = [f"{value:.2f}" if known else "·" for value, known in zip(matrix[position], seen, strict=True)]
            table.add_row(escape(name), *cells)
        shown.print(table)
    if distances.privacy:
        spent = max(part["epsilon"] for part in distances.privacy.values())
        delta = max(part["delta"] for part in distances.privacy.values())
        shown.print(f"Spent:   epsilon {spent:.3g} at delta {delta:g}, at most, by each client (schema not counted).")
    shown.print(f"Next:    {escape(next_command)}")


def show_training(result: TrainingResult, folder: Path, judgement: Judgement | None = None) -> None:
    """Print the mean accuracy of each coalition, what it gained where that is known, and where the models are.

    Parameters
    ----------
    result : TrainingResult
        The result.
    folder : Path
        Where it was saved.
    judgement : Judgement, optional
        What the trainings of the run mean, where there are others to compare with.
    """
    shown = console()
    own = Judgement.of({"trained": result}, None, result.names)
    for line in () if judgement is None else judgement.contradictions():
        shown.print(f"[bold red]Not confirmed by training.[/bold red] {escape(line)}")
    table = plain_table("coalition", own.task.score)
    for members in result.coalitions:
        mean = Judgement.of({"trained": result}, None, members).accuracy("trained").average
        table.add_row(escape(range_of_names(members)), f"{amount(mean.mean)}{plus_minus(mean)} %")
    shown.print(table)
    mean = own.accuracy("trained").average
    further = [f"{each.short} {each.text(own.mean('trained', each.key))}" for each in own.task.further]
    further += [f"{own.task.loss} {measure(own.mean('trained', 'loss'), 1, '', 3)}"]
    shown.print(f"Mean {own.task.score} {amount(mean.mean)}{plus_minus(mean)} % ({', '.join(further)}).")
    if own.lengths():
        shown.print(own.lengths())
    for line in () if judgement is None else [*judgement.sentences(), *judgement.remarks()]:
        shown.print(escape(line))
    shown.print(f"Models and metrics: {escape(str(folder))}")
