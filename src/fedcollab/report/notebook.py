"""How results look in a notebook: a small table. Their charts are in `plots`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup, escape

from fedcollab.coalitions import Collaboration
from fedcollab.distances import Distances
from fedcollab.report.words import answer_sentence, coalition_line, range_of_names

if TYPE_CHECKING:
    from fedcollab.training import TrainingResult

#: a matrix is shown as a table up to this many clients
TABLE = 12
#: coalitions that are listed
LISTED = 20


def distances_html(distances: Distances) -> str:
    """Return what was compared and the range of distances as HTML; the matrix too for few clients."""
    matrix, names = distances.matrix, distances.names
    off = matrix[~np.eye(len(names), dtype=bool)]
    span = f", from {off.min():.2f} (alike) to {off.max():.2f} (different)" if off.size else ""
    title = f"Distances of {len(names)} clients{span}; method {distances.method}"
    if len(names) > TABLE:
        return _page(title, Markup("<p>{}</p>").format(range_of_names(names)))
    rows = [
        (name, ["" if i == j else f"{matrix[i, j]:.2f}" for j in range(len(names))]) for i, name in enumerate(names)
    ]
    return _page(title, _table(["", *names], rows))


def collaboration_html(collaboration: Collaboration) -> str:
    """Return the answer in a sentence, and the coalitions, as HTML."""
    names = client_names(collaboration)
    quantities = dict(zip(names, collaboration.quantities.astype(int).tolist(), strict=True))
    groups = [[str(member) for member in members] for members in collaboration.coalitions]
    rows = [(str(number), [coalition_line(members, quantities)]) for number, members in enumerate(groups[:LISTED], 1)]
    more = f"and {len(groups) - LISTED} more coalitions" if len(groups) > LISTED else ""
    return _page(answer_sentence(collaboration, names), _table(["coalition", "clients"], rows) + escape(more))


def training_html(result: TrainingResult) -> str:
    """Return the mean accuracy of each coalition as HTML."""
    accuracy = dict(zip(result.names, result.reported.tolist(), strict=True))
    rows = [
        (range_of_names(members), [f"{100 * np.mean([accuracy[name] for name in members]):.1f} %"])
        for members in result.coalitions[:LISTED]
    ]
    score = result.scores.task.score
    title = f"{result.method}: mean {score} {100 * np.nanmean(result.reported):.1f} % over {len(result.names)} clients"
    return _page(title, _table(["coalition", score], rows))


def client_names(collaboration: Collaboration) -> list[str]:
    """Return the clients' names, or their positions where they have none."""
    return [str(name) for name in (collaboration.names or range(len(collaboration.assignment)))]


def _page(title: str, body: str) -> str:
    """Return a title and a body as HTML."""
    return str(Markup("<div><p><strong>{}</strong></p>{}</div>").format(title, Markup(body)))


def _table(heads: Sequence[str], rows: Iterable[tuple[str, list[str]]]) -> Markup:
    """Return a table as HTML; the first cell of each row is a heading."""
    top = Markup().join(Markup("<th>{}</th>").format(head) for head in heads)
    lines = Markup().join(
        Markup("<tr><th>{}</th>{}</tr>").format(
            name, Markup().join(Markup("<td>{}</td>").format(cell) for cell in cells)
        )
        for name, cells in rows
    )
    return Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(top, lines)
