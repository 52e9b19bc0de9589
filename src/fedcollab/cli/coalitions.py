"""`fedcollab solve`, `explain` and `path`: the coalitions stage on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from fedcollab import coalitions, files, inspection, report, runs
from fedcollab.cli import options
from fedcollab.cli.artefacts import open_collaboration, open_distances
from fedcollab.cli.names import METHODS, ClientName, Name
from fedcollab.cli.settings import take_constraints
from fedcollab.coalitions.inputs import read_C
from fedcollab.errors import InputError

if TYPE_CHECKING:
    from fedcollab.advice import Advice
    from fedcollab.coalitions import Collaboration, CPath
    from fedcollab.coalitions.explain import Explanation
    from fedcollab.inspection import Inspection

_input = options.several(
    click.argument("distances", metavar="[RUN|FILE]", required=False, type=click.Path(path_type=Path)),
    click.option("--matrix", type=click.Path(path_type=Path), help="CSV with an N x N matrix in [0, 1], instead."),
    click.option("--quantities", type=click.Path(path_type=Path), help="CSV with the samples of each client."),
    options.constraints,
    options.seed,
)


@click.command(
    epilog="""\b
Examples:
  fedcollab solve distances.json -o collaboration.json
  fedcollab solve runs/hospitals -o runs/hospitals
  fedcollab solve distances.json --cannot-link north,south
  fedcollab solve --matrix D.csv --quantities m.csv --C 10 --method exact --json"""
)
@_input
@click.option(
    "--C",
    "C",
    default="auto",
    show_default=True,
    help="How much it hurts to have little data: a positive number (the paper's is 10), or auto.",
)
@click.option(
    "--method",
    type=Name(METHODS),
    default="auto",
    show_default=True,
    help="Search only, prove the optimum, or whichever suits the number of clients.",
)
@click.option("--restarts", default=100, show_default=True, help="Restarts of the local search.")
@options.out("Save the answer to this file, or into this run directory.")
@options.json
def solve(C: str, method: str, restarts: int, out: Path | None, as_json: bool, **source: Any) -> None:
    """Who should train with whom? Finds the coalitions that minimise the bound on every client's error.

    Distances come from a file of `fedcollab estimate`, from a run directory that holds one, or from a plain matrix.
    """
    table, limits = _read(**source)
    answer = coalitions.solve(*table, C=C, method=method, restarts=restarts, **limits)
    if out is not None:
        out = files.inside(out, "collaboration.json")
        read = source["distances"]
        digest = {} if read is None else {"distances.json": files.digest(files.inside(read, "distances.json"))}
        settings = {"C": read_C(C), "method": method, "restarts": restarts, **limits}
        answer.save(out, {"settings": settings, "inputs": digest})
    if as_json:
        options.print_json(_summary(answer))
    else:
        _show(answer, out)


@click.command(
    epilog="""\b
Examples:
  fedcollab explain runs/hospitals
  fedcollab explain collaboration.json --client north"""
)
@click.argument("collaboration", metavar="RUN|FILE", type=click.Path(path_type=Path))
@click.option(
    "--client",
    type=ClientName("collaboration"),
    help="One client's choices in words; without it, all clients in a table.",
)
@options.json
def explain(collaboration: Path, client: str | None, as_json: bool) -> None:
    """Why is a client where it is? What it will gain, and its bound now, alone, with everyone and elsewhere.

    The coalitions are those of a run directory, or of a file that `fedcollab solve` wrote. Gains are told where an
    advice has been measured (`fedcollab run` and `advise` do that), in points of accuracy over training alone.
    """
    answer = open_collaboration(collaboration)
    advice = runs.Run(collaboration).advice() if collaboration.is_dir() else None
    names = answer.names or tuple(str(position) for position in range(len(answer.assignment)))
    stories = [answer.explain(name) for name in ([client] if client is not None else names)]
    checked = inspection.read_beside(collaboration if collaboration.is_dir() else collaboration.parent)
    if as_json:
        listed = checked if client is not None or len(names) <= report.findings.CLIENTS else None
        expected = {} if advice is None else advice.as_dict()["gains"]
        found = [
            {
                **story.as_dict(),
                **({"expected": expected[story.client]} if story.client in expected else {}),
                **_differences(listed, str(story.client), names),
            }
            for story in stories
        ]
        options.print_json(found[0] if client is not None else found)
    elif client is not None:
        measured = [] if advice is None else [advice.explain(client), "", "By the bound, before anything is trained:"]
        click.echo("\n".join([*measured, str(stories[0]), *report.separating(checked, names, client)]))
    else:
        _show_stories(answer, stories, advice)
        for line in report.separating(checked, names):
            click.echo(line)


@click.command(
    epilog="""\b
Examples:
  fedcollab path runs/hospitals
  fedcollab path --matrix D.csv --quantities m.csv --json"""
)
@_input
@options.json
def path(as_json: bool, **source: Any) -> None:
    """How do the coalitions change with C? Every partition with its interval of C, and a suggestion."""
    table, limits = _read(**source)
    found = coalitions.c_path(*table, **limits)
    if as_json:
        options.print_json(found.as_dict())
    else:
        _show_path(found)


def _differences(checked: Inspection | None, client: str, names: Sequence[str]) -> dict[str, Any]:
    """Return the columns that tell a client apart from each other one, for JSON; empty if the data were not checked."""
    if checked is None or client not in checked.profiles:
        return {}
    others = [name for name in names if name != client and name in checked.profiles]
    return {
        "differences": {
            name: [{"column": each.column, "distance": each.distance} for each in checked.differences(client, name)]
            for name in others
        }
    }


def _read(
    distances: Path | None,
    matrix: Path | None,
    quantities: Path | None,
    seed: int,
    **limits: Any,
) -> tuple[tuple[Any, Any], dict[str, Any]]:
    """Return the distances and quantities that were named, and the options of `solve` and `c_path`."""
    if (distances is None) == (matrix is None):
        raise InputError("give either a distances file or --matrix D.csv with --quantities m.csv")
    names = None
    table: tuple[Any, Any]
    if distances is not None:
        if quantities is not None:
            raise InputError("--quantities goes with --matrix; a distances file has its own")
        loaded = open_distances(distances)
        table, names = (loaded, None), loaded.names
    else:
        if matrix is None or quantities is None:
            raise InputError("--matrix needs --quantities: a CSV with the samples of each client")
        values, names = coalitions.read_matrix(matrix)
        table = values, coalitions.read_quantities(quantities, names)
    taken = take_constraints(limits, named=names is not None)
    if distances is not None and distances.is_dir():  # what the silos' limits ask for, as a run has noted it
        noted = runs.Run(distances).config().get("clients", {}).values()
        taken["min_size"] = max([taken["min_size"], *(client.get("min_coalition", 1) for client in noted)])
    return table, {**taken, "seed": seed, "names": names}


def _summary(answer: Collaboration) -> dict[str, Any]:
    """Return the answer as plain values, for JSON."""
    return {
        "coalitions": answer.coalitions,
        "objective": answer.objective,
        "lower_bound": answer.lower_bound,
        "gap": answer.gap,
        "optimal": answer.optimal,
        "method": answer.method,
        "C": answer.C,
        "assignment": answer.assignment,
    }


def _show(answer: Collaboration, output: Path | None) -> None:
    """Print the answer, the coalitions, and who would be better off elsewhere."""

    from rich.markup import escape

    names = answer.names or tuple(str(position) for position in range(len(answer.assignment)))
    quantities = {name: round(m) for name, m in zip(names, answer.quantities.tolist(), strict=True)}
    shown = report.console()
    shown.print(f"[bold]{escape(report.answer_sentence(answer, names))}[/bold]")
    for number, members in enumerate(answer.coalitions, 1):
        shown.print(f"  {number}. {escape(report.coalition_line([str(member) for member in members], quantities))}")
    wishes = coalitions.rationality(answer) if len(names) <= 1000 else []
    if wishes:
        first = wishes[0]
        shown.print(
            f"{len(wishes)} of {len(names)} clients would be better off elsewhere by their own bound, "
            f"{escape(str(first.client))} most (by {first.gain:.3g} of {answer.explain(first.client).now.bound:.3g})."
        )
    if output is not None:
        shown.print(f"\nSaved:  {escape(str(output))}\nNext:   fedcollab explain {escape(quote(str(output)))}")


def _show_stories(answer: Collaboration, stories: list[Explanation], advice: Advice | None) -> None:
    """Print the expected gain, where there is an advice, and the bounds of every client as a table."""

    from rich.markup import escape

    gains = ("gain", "probability") if advice is not None else ()
    bounds = ("data", "partners", "bound", "alone", "everyone", "best elsewhere")
    table = report.plain_table("client", "coalition", *gains, *bounds)
    for story in stories:
        others = [choice.bound for choice in story.elsewhere if choice.allowed]
        table.add_row(
            escape(str(story.client)),
            str((story.now.coalition or 0) + 1),
            *([] if advice is None else _expected(advice, str(story.client))),
            f"{story.generalisation:.3f}",
            f"{story.shift:.3f}",
            f"{story.now.bound:.3f}",
            f"{story.alone.bound:.3f}",
            f"{story.everyone.bound:.3f}",
            f"{min(others):.3f}" if others else "",
        )
    shown = report.console()
    shown.print(
        f"[bold]The bound of every client[/bold] (lower is better; together {answer.objective:.4g}), C = {answer.C:.3g}"
    )
    shown.print(table)
    if advice is not None:
        unit = "in the target's units" if advice.target else "in points of accuracy"
        shown.print(
            f"gain: expected over training alone, {unit}, drawn towards the mean of all where a client's "
            "own rows say little; probability: of gaining at all."
        )
    shown.print(
        "data, partners: the bound's two parts, for too little data and for unlike partners. One client in words: "
        "--client NAME"
    )


def _expected(advice: Advice, client: str) -> list[str]:
    """Return a client's expected gain and the probability of gaining, as text; "alone" where it has no partners."""
    if advice.weights[advice.names.index(client), advice.names.index(client)] == 1:
        return ["alone", ""]
    gain = advice.gains[client].accuracy
    return [report.gain_table_rows(advice, [client])[0][1], f"{min(max(gain.probability, 0.01), 0.99):.2f}"]


def _show_path(found: CPath) -> None:
    """Print every partition along the path over C as a table, with the suggested one marked."""

    from rich.markup import escape

    best = found.suggested
    table = report.plain_table("C from", "to", "coalitions", "proven", "", right=("C from", "to"))
    for part in found:
        groups = " | ".join(report.range_of_names([str(member) for member in members]) for members in part.coalitions)
        text = "everyone alone" if len(part.coalitions) == len(part.assignment) else groups
        text = "everyone together" if len(part.coalitions) == 1 else text
        high = "" if part.c_high == float("inf") else f"{part.c_high:.3g}"
        mark = "<- suggested" if part is best else ""
        table.add_row(f"{part.c_low:.3g}", high, escape(text), "yes" if part.proven else "no", mark)
    shown = report.console()
    count = len(best.coalitions)
    word = "everyone alone" if count == len(best.assignment) else f"{count} coalitions"
    word = "everyone together" if count == 1 else word
    shown.print(f"[bold]Suggested C = {best.C:.3g}: {word}[/bold]")
    shown.print(table)
