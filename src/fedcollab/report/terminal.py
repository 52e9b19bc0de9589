"""What a person sees on the terminal: the answer first, in words, then the figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedcollab import metrics
from fedcollab.report.absent import unmeasured
from fedcollab.report.words import answer_sentence, coalition_line, range_of_names
from fedcollab.runs.run import WAYS
from fedcollab.wire import absence
from fedcollab.wire.absence import words

if TYPE_CHECKING:
    from fedcollab.distances import Distances
    from fedcollab.runs.pipeline import Fitted
    from fedcollab.scenarios import Scenario
    from fedcollab.training import TrainingResult


def console() -> Console:
    """Return a console with colour only on a terminal, and without wrapping at 80 columns in a pipe."""
    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=110)


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


def show_run(fitted: Fitted, results: Mapping[str, TrainingResult], page: Path, next_command: str) -> None:
    """Print the coalitions, why, what was gained, and what to do next.

    Parameters
    ----------
    fitted : Fitted
        The answer before training.
    results : mapping of TrainingResult
        The results of training, by way of training.
    page : Path
        The report, in the run directory.
    next_command : str
        The command that is suggested at the end.
    """
    shown = console()
    collaboration = fitted.collaboration
    quantities = dict(zip(fitted.distances.names, fitted.distances.quantities.tolist(), strict=True))
    shown.print(f"\n[bold]{escape(answer_sentence(collaboration, fitted.distances.names))}[/bold]")
    for number, members in enumerate(collaboration.coalitions, 1):
        shown.print(f"  {number}. {escape(coalition_line(members, quantities))}")
    shown.print()
    shown.print(gain_table(results))
    shown.print(escape(verdict(results)))
    for way, result in results.items():
        for reason in result.stopped.values():
            shown.print(f"[bold]Note[/bold] ({WAYS[way]}): {escape(reason)}")
    for line in [*unmeasured(results), *words(absence.read(page.parent))]:
        shown.print(f"[bold]Note[/bold]: {escape(line)}")
    shown.print(f"\nReport:  {escape(str(page))}\nNext:    {escape(next_command)}")


def gain_table(results: Mapping[str, TrainingResult]) -> Table:
    """Return a table with the accuracy, IPR and RSD of every way of training."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("training", "accuracy", "IPR", "RSD", "worst client"):
        table.add_column(heading, justify="left" if heading == "training" else "right")
    local = results["local"].reported
    for way, result in results.items():
        accuracy = result.reported
        gains = ("", "")
        if way != "local":
            gains = (f"{100 * metrics.ipr(accuracy, local):.0f} %", f"{100 * metrics.rsd(accuracy, local):.1f}")
        mean, worst = np.nanmean(accuracy), np.nanmin(accuracy)  # without those who did not answer at the end
        row = (WAYS.get(way, way), f"{100 * mean:.1f} %", *gains, f"{100 * worst:.1f} %")
        table.add_row(*row, style="bold" if way == "coalitions" else None)
    return table


def verdict(results: Mapping[str, TrainingResult]) -> str:
    """Say in a few sentences what the figures of `gain_table` mean."""
    local, everyone, grouped = (results[way].reported for way in ("local", "global", "coalitions"))

    def count(accuracy: np.ndarray) -> tuple[int, int, int]:
        """Count the clients that do better than alone, equally well, and worse."""
        return int((accuracy > local).sum()), int((accuracy == local).sum()), int((accuracy < local).sum())

    _, _, worse = count(everyone)
    better, same, lost = count(grouped)
    return (
        "IPR: share of clients that gain against training alone; RSD: how unequal the gains are (points).\n"
        f"Everyone together: {worse} of {len(local)} clients get a worse model than they would have alone.\n"
        f"In coalitions: {better} get a better one, {same} one as good, {lost} a worse one."
    )


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
        off &= distances.observed
        shown.print(f"{missing} pair(s) could not be measured: later, the same command with --resume measures them.")
    if not off.any():
        return
    shown.print(
        f"Distances of {len(names)} clients (0: alike, 1: nothing in common), "
        f"method {distances.method}: from {matrix[off].min():.2f} to {matrix[off].max():.2f}."
    )
    if len(names) <= 12:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("")
        for name in names:
            table.add_column(escape(name), justify="right")
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


def show_training(result: TrainingResult, folder: Path) -> None:
    """Print the mean accuracy of each coalition, and where the models are.

    Parameters
    ----------
    result : TrainingResult
        The result.
    folder : Path
        Where it was saved.
    """
    shown = console()
    accuracy = dict(zip(result.names, result.reported.tolist(), strict=True))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("coalition")
    table.add_column("accuracy", justify="right")
    for members in result.coalitions:
        mean = float(np.mean([accuracy[name] for name in members if np.isfinite(accuracy[name])] or [np.nan]))
        table.add_row(escape(range_of_names(members)), f"{100 * mean:.1f} %")
    shown.print(table)
    shown.print(
        f"Mean accuracy {100 * np.nanmean(list(accuracy.values())):.1f} %. Models and metrics: {escape(str(folder))}"
    )
