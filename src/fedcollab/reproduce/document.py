"""docs/results.md from the cells: what was run, beside the paper, with seeds, rounds, date, machine and command.

Nothing is computed here. What is marked as far from the paper's number is explained in `explanations.toml` beside the
cells, one entry a table and scenario; what is marked and has no entry there is listed as not explained yet. Its table
[questions] may open the answers of docs/questions.md.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcollab import files
from fedcollab.errors import InputError
from fedcollab.reproduce import questions
from fedcollab.reproduce.experiment import Experiment
from fedcollab.reproduce.experiments import EXPERIMENTS
from fedcollab.reproduce.output import Output
from fedcollab.reproduce.workspace import Workspace

HEAD = """# Results

What `fedcollab reproduce` gave, beside the paper's figures (Bao, Wang, Wu, He, ICML 2023). This page is written by
`fedcollab reproduce --write-docs docs` from the cells in [`results/cells`](../results/cells), one small file a run; the
commands below compute what is not there yet and draw the tables and figures again. Percentages; mean (standard
deviation) over seeds; † marks what is more than two of the paper's standard deviations away from the paper's figure.
Coalitions come from the estimated distances and the solver, never typed in. Not here, because the paper has nothing of
the kind: the study of seventeen real federations, [federations.md](federations.md).

Acc is the mean test accuracy of the clients, IPR the share of clients that are better than by training alone, RSD the
standard deviation of what clients gain over training alone. A seed deals the samples and trains. Coalitions are written
with the clients' numbers: "0-4, 5+7, 6" are three, of clients 0 to 4, of 5 and 7, and of 6 alone. K is the number of
clusters that a clustered method is told to make.
"""


def write_docs(workspace: Workspace, folder: Path, docs: Path, pages: Sequence[Experiment] = ()) -> list[Path]:
    """Write the pages about results from the cells there are.

    Parameters
    ----------
    workspace : Workspace
        The cells.
    folder : Path
        Where the tables and figures go that the pages show; its `explanations.toml` explains differences.
    docs : Path
        Where results.md and questions.md go, and where pages that experiments have of their own are renewed.
    pages : sequence of Experiment
        Renew only the pages of these experiments.

    Returns
    -------
    list of Path
        results.md and questions.md, or the pages that were renewed.

    Raises
    ------
    InputError
        If one of `pages` has no page of its own there, or no cells.
    """
    if pages:
        return [_renew_page(workspace, folder, docs, experiment) for experiment in pages]
    why = explanations(folder)
    parts = [HEAD]
    for experiment in EXPERIMENTS.values():
        made = experiment.output(workspace)
        if not (made.tables or made.charts):
            continue
        if experiment.page and (docs / experiment.page).exists():
            _renew_page(workspace, folder, docs, experiment)
            title = experiment.title if experiment.title.endswith("?") else f"{experiment.title}."
            parts.append(
                f"## {experiment.name}\n\n{title} On a page of its own: [docs/{experiment.page}]({experiment.page}).\n"
            )
        else:
            made.save(experiment.name, folder, experiment.title)
            parts.append(section(experiment, made, workspace, why, os.path.relpath(folder, docs)))
    target = docs / "results.md"
    files.write_bytes(target, ("\n".join(part.strip() + "\n" for part in parts)).encode())
    return [target, questions.write(workspace, docs, why.get("questions", {}))]


def _renew_page(workspace: Workspace, folder: Path, docs: Path, experiment: Experiment) -> Path:
    """Renew the page of one experiment, and what other pages show of it."""
    page = docs / experiment.page
    if not experiment.page or not page.exists():
        raise InputError(f"`--write-docs` (='{docs}') has no page of {experiment.name}; without names all are written")
    made = experiment.output(workspace)
    if not (made.tables or made.charts):
        raise InputError(
            f"`{folder}` has no complete cells of {experiment.name}: run `fedcollab reproduce {experiment.name}`"
        )
    made.save(experiment.name, folder, experiment.title)
    tables = {table.key: table.markdown() for table in made.tables}
    renew(page, {"ran": experiment.ran(workspace) + "\n", **tables, **made.blocks})
    for other in experiment.shown_in:
        if (docs.resolve() / other).exists():
            renew(docs.resolve() / other, made.blocks)
    return page


def renew(page: Path, blocks: Mapping[str, str]) -> None:
    """Renew parts of a page written by hand.

    Parameters
    ----------
    page : Path
        The page. Each part stands between `<!-- KEY: begin -->` and `<!-- KEY: end -->`.
    blocks : mapping of str
        The texts by key; keys that the page does not have are left out.
    """
    text = page.read_text(encoding="utf-8")
    for key, block in blocks.items():
        first, last = f"<!-- {key}: begin -->\n", f"<!-- {key}: end -->"
        before, mark, rest = text.partition(first)
        _, end, after = rest.partition(last)
        if mark and end:
            text = f"{before}{first}\n{block}\n{last}{after}"
    files.write_bytes(page, text.encode())


def section(experiment: Experiment, made: Output, workspace: Workspace, why: dict[str, Any], folder: str) -> str:
    """Return the section about one experiment.

    Parameters
    ----------
    experiment : Experiment
        The experiment.
    made : Output
        Its tables and pictures.
    workspace : Workspace
        The cells.
    why : dict
        Why numbers differ from the paper's, by experiment and table.
    folder : str
        Where the pictures are, seen from the page.
    """
    lines = [f"## {experiment.name}", "", f"{experiment.title}. In the paper: {experiment.place}.", ""]
    lines += [
        f"`fedcollab reproduce {experiment.name}`. {experiment.ran(workspace)}",
        "",
    ]
    for text in made.text:
        lines += [text, ""]
    known = why.get(experiment.name, {})
    for table in made.tables:
        lines += [table.markdown()]
        if table.far:
            reason = known.get(table.key)
            differ = "1 figure differs" if table.far == 1 else f"{table.far} figures differ"
            lines += [f"Why {differ}: {reason}" if reason else "Not explained yet.", ""]
    lines += [f"![{picture}]({folder}/{picture}.svg)\n" for picture in made.charts]
    return "\n".join(lines)


def explanations(folder: Path) -> dict[str, Any]:
    """Return why numbers differ from the paper's: [EXPERIMENT] with one text a table."""
    path = folder / "explanations.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
