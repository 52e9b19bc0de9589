"""docs/results.md from the cells: what was run, beside the paper, with seeds, rounds, date, machine and command.

Nothing is computed here. What is marked as far from the paper's figure is explained in `explanations.toml` beside the
cells, one entry a table and scenario; what is marked and has no entry there is listed as not explained yet. Its table
[questions] may open the answers of docs/questions.md.
"""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedcollab import files as artefact
from fedcollab.reproduce import questions
from fedcollab.reproduce.cells import Kept
from fedcollab.reproduce.experiment import Experiment
from fedcollab.reproduce.lab import Lab
from fedcollab.reproduce.output import Output

HEAD = """# Results

What `fedcollab reproduce` gave, beside the paper's figures (Bao, Wang, Wu, He, ICML 2023). This page is written by
`fedcollab reproduce --write-docs docs` from the cells in [`results/cells`](../results/cells), one small file a run; the
commands below compute what is not there yet and draw the tables and figures again. Percentages; mean (standard
deviation) over seeds; † marks what is more than two of the paper's standard deviations away from the paper's figure.
Coalitions come from the estimated distances and the solver, never typed in.

Acc is the mean test accuracy of the clients, IPR the share of clients that are better than by training alone, RSD the
standard deviation of what clients gain over training alone. A seed deals the samples and trains. Coalitions are written
with the clients' numbers: "0-4, 5+7, 6" are three, of clients 0 to 4, of 5 and 7, and of 6 alone. K is the number of
clusters that a clustered method is told to make.
"""


def write(lab: Lab, folder: Path, docs: Path) -> list[Path]:
    """Write DIR/results.md and DIR/questions.md, and the tables and figures in `folder` that it shows."""
    from fedcollab.reproduce import EXPERIMENTS

    why = explanations(folder)
    parts = [HEAD]
    for experiment in EXPERIMENTS.values():
        made = experiment.output(lab)
        if not (made.tables or made.charts):
            continue
        made.save(experiment.name, folder, experiment.title)
        if experiment.page and (docs / experiment.page).exists():
            renew(docs / experiment.page, made, provenance(lab.kept(list(experiment.cells(lab)))))
            parts.append(
                f"## {experiment.name}\n\n{experiment.title} On a page of its own: [docs/{experiment.page}]"
                f"({experiment.page}).\n"
            )
        else:
            parts.append(section(experiment, made, lab, why, os.path.relpath(folder, docs)))
    target = docs / "results.md"
    artefact.write_bytes(target, ("\n".join(part.strip() + "\n" for part in parts)).encode())
    return [target, questions.write(lab, docs, why.get("questions", {}))]


def renew(page: Path, made: Output, ran: str) -> None:
    """Renew the tables of a page written by hand: each between `<!-- KEY: begin -->` and `<!-- KEY: end -->`."""
    text = page.read_text(encoding="utf-8")
    for key, block in {"ran": ran + "\n", **{table.key: table.markdown() for table in made.tables}}.items():
        first, last = f"<!-- {key}: begin -->\n", f"<!-- {key}: end -->"
        before, mark, rest = text.partition(first)
        _, end, after = rest.partition(last)
        if mark and end:
            text = f"{before}{first}\n{block}\n{last}{after}"
    artefact.write_bytes(page, text.encode())


def section(experiment: Experiment, made: Output, lab: Lab, why: dict[str, Any], folder: str) -> str:
    """One table or figure of the paper."""
    lines = [f"## {experiment.name}", "", f"{experiment.title}. In the paper: {experiment.place}.", ""]
    lines += [f"`fedcollab reproduce {experiment.name}`. {provenance(lab.kept(list(experiment.cells(lab))))}", ""]
    for text in made.text:
        lines += [text, ""]
    known = why.get(experiment.name, {})
    for table in made.tables:
        lines += [table.markdown()]
        if table.far:
            said = known.get(table.key)
            lines += [f"Why {table.far} figures differ: {said}" if said else "Not explained yet.", ""]
    lines += [f"![{picture}]({folder}/{picture}.svg)\n" for picture in made.charts]
    return "\n".join(lines)


def provenance(kept: Sequence[Kept]) -> str:
    """How many cells, when, where and for how long."""
    if not kept:
        return "Computed in seconds, without cells."
    days = sorted({cell.date for cell in kept})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    machine = Counter(cell.machine for cell in kept).most_common(1)[0][0]
    spent = said_time(sum(cell.seconds for cell in kept))
    return f"{len(kept)} cell{'s' * (len(kept) > 1)}, {when}, {machine}, {spent} of one core in all."


def said_time(seconds: float) -> str:
    """Seconds in words.

    >>> said_time(40), said_time(600), said_time(9000)
    ('40 s', '10 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def explanations(folder: Path) -> dict[str, Any]:
    """Why figures differ from the paper's: [TABLE] with one text a scenario."""
    path = folder / "explanations.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
