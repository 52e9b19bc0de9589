"""What a data check found, for the terminal and the page; and which columns tell clients apart, in words."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.markup import escape
from rich.table import Table

from fedcollab.report.terminal import console
from fedcollab.report.words import range_of_names

if TYPE_CHECKING:
    from fedcollab.inspection import Difference, Finding, Inspection
    from fedcollab.report.run import RunContents

STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}
#: the most columns that a sentence names, and the most pairs that a page lists
COLUMNS, PAIRS = 3, 12
#: the most clients of which all pairs are compared column by column
CLIENTS = 40


def show_inspection(found: Inspection, next_command: str | None = None) -> None:
    """Print every finding as a table, and what they mean together.

    Parameters
    ----------
    found : Inspection
        What was found.
    next_command : str, optional
        The command that is suggested at the end.
    """
    shown = console()
    shown.print(f"[bold]{escape(headline(found))}[/bold]")
    rows = found.grouped()
    if rows:
        shown.print(_table(rows))
    if next_command is not None:
        shown.print(f"\nNext:    {escape(next_command)}")


def show_warnings(found: Inspection) -> None:
    """Print the warnings of a data check, if there are any."""
    rows = [row for row in found.grouped() if row[0].severity == "warning"]
    if rows:
        shown = console()
        shown.print("[bold]The data check found what you should know:[/bold]")
        shown.print(_table(rows))
        shown.print("")


def headline(found: Inspection) -> str:
    """Return in one sentence what a data check found."""
    kinds = [finding.severity for finding, _ in found.grouped()]
    errors, warnings = kinds.count("error"), kinds.count("warning")
    if errors:
        return f"{_count(errors, 'thing makes', 'things make')} any advice on these data unsafe."
    if warnings:
        return f"Nothing makes the advice unsafe; {_count(warnings, 'thing is', 'things are').lower()} worth knowing."
    return f"Nothing speaks against the data of these {len(found.names)} clients."


def finding_rows(found: Inspection) -> list[dict[str, str]]:
    """Return the warnings and errors of a data check as rows of the page."""
    return [
        {"clients": _who(names), "column": finding.column or "", "seen": finding.message, "remedy": finding.remedy}
        for finding, names in found.grouped()
        if finding.severity != "info"
    ]


def difference_sentence(found: Inspection, first: str, second: str) -> str | None:
    """Return in words in which columns two clients differ most; None where no column stands out.

    Parameters
    ----------
    found : Inspection
        The data check of the run.
    first, second : str
        The clients.
    """
    if first not in found.profiles or second not in found.profiles:
        return None
    columns = found.differences(first, second)
    if not columns:
        return f"{first} and {second} differ in no single column by more than chance."
    named = [_difference(each) for each in columns[:COLUMNS]]
    listed = " and ".join([", ".join(named[:-1]), named[-1]]) if len(named) > 1 else named[0]
    return f"{first} and {second} differ most in {listed}."


def separates(run: RunContents) -> list[str]:
    """Return which columns tell clients apart, for the pairs that are most different: sentences for the page."""
    if run.inspection is None:
        return []
    names = run.names
    first, second = np.nonzero(np.triu(run.distances.observed, 1))
    order = np.argsort(-run.distances.matrix[first, second], kind="stable")[:PAIRS]
    pairs = zip(first[order].tolist(), second[order].tolist(), strict=True)
    return _sentences(run.inspection, [(names[i], names[j]) for i, j in pairs])


def separating(found: Inspection | None, names: Sequence[str], client: str | None = None) -> list[str]:
    """Return which columns tell clients apart, for the pairs with the most different column: sentences.

    Parameters
    ----------
    found : Inspection or None
        The data check of the run, if there was one.
    names : sequence of str
        The clients.
    client : str, optional
        The client whose pairs count; without it, all pairs, if there are not too many.
    """
    if found is None:
        return []
    known = [name for name in names if name in found.profiles]
    if client is None and len(known) > CLIENTS:
        return []
    if client is None:
        pairs = list(itertools.combinations(known, 2))
    else:
        pairs = [(client, name) for name in known if name != client and client in known]
    most = {pair: max((each.distance for each in found.differences(*pair)), default=0.0) for pair in pairs}
    return _sentences(found, sorted(pairs, key=lambda pair: -most[pair])[:PAIRS])


def _sentences(found: Inspection, pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Return a sentence for each pair with a different column, and one for all pairs without."""
    known = [pair for pair in pairs if set(pair) <= set(found.profiles)]
    alike = [pair for pair in known if not found.differences(*pair)]
    sentences = [difference_sentence(found, *pair) for pair in known if pair not in alike]
    common = set.intersection(*map(set, alike)) if alike else set()
    if len(alike) == 1:
        sentences.append(difference_sentence(found, *alike[0]))
    elif len(common) == 1:
        (client,) = common
        others = [name for pair in alike for name in pair if name != client]
        sentences.append(f"{client} differs in no single column by more than chance from {range_of_names(others)}.")
    elif alike:
        listed = "; ".join(f"{first} and {second}" for first, second in alike)
        sentences.append(f"In no single column do these differ by more than chance: {listed}.")
    return [sentence for sentence in sentences if sentence is not None]


def _difference(each: Difference) -> str:
    name = "the labels" if each.column == "label" else each.column
    return f"{name} ({each.distance:.2f})"


def _table(rows: Sequence[tuple[Finding, list[str]]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    widths = {"": 7, "client": 16, "column": 14, "what was seen, and what it does": None, "what settles it": 30}
    for heading, width in widths.items():
        table.add_column(heading, max_width=width, overflow="fold")
    for finding, names in rows:
        style = STYLES[finding.severity]
        table.add_row(
            f"[{style}]{finding.severity}[/{style}]",
            escape(_who(names)),
            escape(finding.column or ""),
            escape(finding.message),
            escape(finding.remedy),
        )
    return table


def _who(names: Sequence[str]) -> str:
    if len(names) <= 3:
        return ", ".join(names) or "all"
    return f"{range_of_names(list(names[:3]))} and {len(names) - 3} more"


def _count(count: int, one: str, many: str) -> str:
    return f"{'One' if count == 1 else count} {one if count == 1 else many}"
