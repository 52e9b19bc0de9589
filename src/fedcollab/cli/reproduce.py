"""`fedcollab reproduce`: the paper's tables and figures and the studies on real data, one name each."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedcollab import report, scenarios
from fedcollab import reproduce as paper
from fedcollab.cli import options
from fedcollab.cli.names import EXPERIMENTS, SCENARIOS, Name
from fedcollab.errors import InputError, choose
from fedcollab.progress import bar

if TYPE_CHECKING:
    from fedcollab.reproduce import Experiment, Workspace


@click.command(
    epilog="""\b
Examples:
  fedcollab reproduce --list
  fedcollab reproduce table-1 --quick
  fedcollab reproduce table-1 --scenario label-shift --seeds 5
  fedcollab reproduce table-2 --methods ifca,kmeans --cells-only
  fedcollab reproduce federations --federations loans_states,heart --seeds 1
  fedcollab reproduce federations --write-docs docs

"""
    + f"Names: {', '.join(EXPERIMENTS)}."
)
@click.argument("names", nargs=-1, metavar="[NAME]...", type=Name(EXPERIMENTS, open_ended=True))
@click.option("--list", "listed", is_flag=True, help="Every name, what it shows, and how long it takes.")
@click.option(
    "--scenario",
    type=Name(SCENARIOS, open_ended=True),
    multiple=True,
    help="Only this kind of shift; repeatable.  [default: all]",
)
@click.option("--methods", help="Of the tables of accuracies only these methods (fedavg,ifca,...), with commas.")
@click.option("--federations", help="Of the study of real federations only these, with commas.")
@click.option("--seeds", type=click.IntRange(1, 20), help="Seeds 0 to N - 1.  [default: as docs/results.md]")
@click.option("--rounds", type=click.IntRange(1), help="Rounds of training.  [default: as docs/results.md]")
@click.option("--quick", is_flag=True, help="Minutes: fewer rounds and seeds; what was reduced is said.")
@click.option("--tiny", is_flag=True, hidden=True, help="Seconds, on digits: for tests.")
@options.out(
    "Folder for cells, tables and figures.  [default: results]", type=click.Path(path_type=Path, file_okay=False)
)
@click.option("--jobs", type=click.IntRange(1), help="Cells at a time, one core each.  [default: the cores there are]")
@click.option("--cells-only", is_flag=True, help="Compute cells, write no tables: for several commands at a time.")
@click.option("--fresh", is_flag=True, help="Compute cells again that are there, or begun.")
@click.option("--write-docs", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Compute nothing: write results.md, questions.md and the figures of heart.md and federations.md in "
              "DIR, and all tables and figures in OUT, from the cells there are; with names their pages.")  # fmt: skip
@options.output
def reproduce(
    names: tuple[str, ...],
    listed: bool,
    scenario: tuple[str, ...],
    methods: str | None,
    federations: str | None,
    seeds: int | None,
    rounds: int | None,
    quick: bool,
    tiny: bool,
    out: Path | None,
    jobs: int | None,
    cells_only: bool,
    fresh: bool,
    write_docs: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """The paper's tables and figures, ours beside the paper's.

    Every run of a method on a seed is a cell, a small file in OUT/cells: an interrupted command goes on where it
    stopped, also inside a training, and a later one with more seeds or rows adds to it. The folder `results` of a
    checkout holds the cells behind docs/results.md.
    """
    report.need_charts()
    if listed:
        _list(paper.EXPERIMENTS, as_json)
        return
    size = "tiny" if tiny else "quick" if quick else "full"
    folder = out or (Path("results") if size == "full" else Path("results") / size)
    listed_methods, listed_federations = (tuple(text.split(",")) if text else () for text in (methods, federations))
    choices = paper.Choices(scenario, seeds, rounds, listed_methods, size, listed_federations)
    workspace = paper.Workspace(choices, paper.Cells(folder / "cells"))
    if write_docs is not None:
        written = paper.write_docs(workspace, folder, write_docs, [paper.find(name) for name in names])
        options.print_json([str(path) for path in written]) if as_json else click.echo("\n".join(map(str, written)))
        return
    if not names:
        raise InputError(f"give a name, one of: {', '.join(paper.EXPERIMENTS)}")
    chosen = [paper.find(name) for name in names]
    for asked_for in chosen:
        if not workspace.scenarios(asked_for.scenarios):
            has = f"one that {asked_for.name} has: {', '.join(asked_for.scenarios)}"
            raise InputError(f"`scenario` (={', '.join(scenario)}) must be {has}")
    workspace = _with_data(workspace, chosen, quiet)
    for method in choices.methods:
        choose("methods", method, paper.METHODS)
    silent = quiet or as_json
    print_line = (lambda line: None) if silent or sys.stderr.isatty() else (lambda line: click.echo(line, err=True))
    with bar(", ".join(names), quiet=silent) as progress:
        paper.compute_missing(
            lambda: [cell for experiment in chosen for cell in experiment.cells(workspace)],
            workspace.cells,
            jobs=jobs or paper.cores(),
            fresh=fresh,
            progress=progress,
            say=print_line,
        )
        for experiment in chosen:
            experiment.compute(workspace, jobs=jobs or paper.cores(), fresh=fresh, progress=progress, say=print_line)
    if cells_only:
        return
    outputs = []
    for experiment in chosen:
        made = experiment.output(workspace)
        paths = made.save(experiment.name, folder, experiment.title)
        outputs.append(
            {
                "name": experiment.name,
                "title": experiment.title,
                "reduced": experiment.reduced(workspace),
                "text": made.text,
                "tables": [record for table in made.tables for record in table.records()],
                "files": [str(path) for path in paths],
            }
        )
        if not as_json:
            _show(made, paths)
            if experiment.reduced(workspace):
                click.echo("Reduced: " + "; ".join(experiment.reduced(workspace)))
    if as_json:
        options.print_json(outputs)


def _list(experiments: dict[str, Experiment], as_json: bool) -> None:
    """Print every experiment, what it shows and how long it takes."""
    rows = [
        {"name": name, "place": made.place, "title": made.title, "time": made.time, "scenarios": list(made.scenarios)}
        for name, made in experiments.items()
    ]
    if as_json:
        options.print_json(rows)
        return
    headings = ("name", "what it shows", "in the paper", "on 2 cores")
    table = report.plain_table(*headings, right=())
    for name, made in experiments.items():
        table.add_row(name, made.title, made.place, made.time)
    report.console().print(table)


def _with_data(workspace: Workspace, chosen: list[Experiment], quiet: bool) -> Workspace:
    """Leave out scenarios that lack cells and whose data are not here, unless they were asked for by name."""
    possible = dict.fromkeys(name for made in chosen for name in workspace.scenarios(made.scenarios))
    parts = {name: workspace.only(name) if name in workspace.setups else workspace for name in possible}
    absent = [
        name
        for name, part in parts.items()
        if scenarios.data.place(workspace.dataset(name)) is None
        and any(workspace.cells.get(cell) is None for made in chosen for cell in made.cells(part))
    ]
    if not absent or workspace.choices.scenarios:
        return workspace
    here = tuple(name for name in possible if name not in absent)
    if not here:
        data = workspace.dataset(absent[0])
        raise InputError(f"`dataset` (={data!r}) is not on this machine: run `fedcollab data get {data}`")
    if not quiet:
        for name in absent:
            data = workspace.dataset(name)
            click.echo(f"note: {name} is left out; for its data run `fedcollab data get {data}`", err=True)
    return workspace.only(*here)


def _show(made: Any, paths: list[Path]) -> None:
    """Print an experiment's texts and tables, and where they are saved."""

    from rich.markup import escape

    shown = report.console()
    for line in made.text:
        shown.print(escape(line))
    for table in made.tables:
        heads, body = table.short()
        drawn = report.plain_table(*heads)
        drawn.title, drawn.title_justify = escape(table.title), "left"
        for row in body:
            drawn.add_row(*map(escape, row))
        shown.print(drawn)
        for note in table.notes:
            shown.print(escape(note))
        if table.far:
            shown.print("ours | paper's; † more than two of the paper's standard deviations away")
    shown.print("Saved:  " + ", ".join(escape(str(path)) for path in paths))
