"""The page's first section: the answer in a sentence, the coalitions, why, and how sure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedcollab.coalitions import Stability, rationality
from fedcollab.coalitions.explain import more_in_words
from fedcollab.report.advised import answer_lines
from fedcollab.report.clients import ClientRow, weakest
from fedcollab.report.words import coalition_line, figure, headline, interval, range_of_names, signed

if TYPE_CHECKING:
    from fedcollab.report.run import RunContents

#: a mean stability below this asks for care
CARE = 0.6


def answer(
    run: RunContents, rows: list[ClientRow], moved: dict[str, Any] | None, stable: Stability | None
) -> dict[str, Any] | None:
    """Return the content of the section, or None where there are no coalitions yet.

    Parameters
    ----------
    run : RunContents
        The run.
    rows : list of ClientRow
        The lines of the clients.
    moved : dict or None
        The data of the slider over C, where the run has a path.
    stable : Stability or None
        How often resampled distances give the same partners, where that is known.
    """
    collaboration = run.collaboration
    if collaboration is None:
        return None
    labels = collaboration.assignment
    members = [[run.names[i] for i in np.flatnonzero(labels == label)] for label in range(int(labels.max()) + 1)]
    quantities = dict(zip(run.names, run.distances.quantities.tolist(), strict=True))
    groups = []
    for number, names in enumerate(members, 1):
        line, _, size = coalition_line(names, quantities).rpartition("  ")
        if len(names) > 1:
            groups.append(
                {"number": number, "names": line, "size": size.strip("()"), "inside": _inside(run, number - 1)}
            )
    singles = [{"number": n, "name": names[0]} for n, names in enumerate(members, 1) if len(names) == 1]
    texts = (
        answer_lines(run, run.advice)
        if run.advice is not None
        else {
            "headline": headline(members, run.names),
            "gain": _gain(run),
            "cards": "",
            "why": _why(run, rows),
            "sure": _sure(run, rows, moved, stable),
        }
    )
    return {
        **texts,
        "groups": groups,
        "singles": singles,
        "singles_words": "1 client, by itself" if len(singles) == 1 else f"{len(singles)} clients, each by itself",
    }


def _gain(run: RunContents) -> list[str]:
    """Return the mean gain over training alone that was measured, in a sentence; nothing before training."""
    if run.judgement is None or not {"local", "coalitions"} <= set(run.results):
        return []
    gain, points = run.judgement.gain("coalitions").average, run.judgement.task.points
    return [f"Measured, against training alone: {signed(gain.mean)} {points} on average ({interval(gain)})."]


def _inside(run: RunContents, label: int) -> str:
    """Say how alike a coalition is inside, and how far the nearest other coalition."""
    assert run.collaboration is not None
    labels, matrix = run.collaboration.assignment, run.distances.matrix
    inside = labels == label
    pairs = matrix[np.ix_(inside, inside)][~np.eye(int(inside.sum()), dtype=bool)]
    text = f"Average distance inside: {pairs.mean():.2f}"
    others = [matrix[np.ix_(inside, labels == other)].mean() for other in range(labels.max() + 1) if other != label]
    return text + (f"; to the nearest other coalition: {min(others):.2f}" if others else "")


def _why(run: RunContents, rows: list[ClientRow]) -> list[str]:
    """Return sentences on why these are the coalitions."""
    assert run.collaboration is not None
    labels, matrix = run.collaboration.assignment, run.distances.matrix
    same = labels[:, None] == labels[None, :]
    off = ~np.eye(len(labels), dtype=bool)
    lines = []
    if (same & off).any() and (~same).any():
        lines.append(
            f"Partners have similar data: the average distance is {matrix[same & off].mean():.2f} inside a coalition "
            f"and {matrix[~same].mean():.2f} between coalitions (0: alike, 1: nothing in common)."
        )
    elif (~same).any():
        lines.append(f"The data are too different to share: the average distance is {matrix[~same].mean():.2f}.")
    elif off.any():
        lines.append(f"The data are alike enough to share: the average distance is {matrix[off].mean():.2f}.")
    better = [row for row in rows if row.change < -0.005]
    if better:
        most = min(better, key=lambda row: row.change)
        lines.append(
            f"By the bound, {len(better)} of {len(rows)} clients can expect a better model than alone; "
            f"{most.name} gains most (its error bound falls by {-100 * most.change:.0f} %)."
        )
    wishes = [
        str(run.names[w.client] if run.collaboration.names is None else w.client)
        for w in rationality(run.collaboration)
    ]
    if wishes:
        many = len(wishes) > 1
        lines.append(
            f"{range_of_names(wishes, 4)} would do better elsewhere, going by {'their' if many else 'its'} own bound "
            f"alone: the partners gain more than {'they lose' if many else 'it loses'}. The table below says how much."
        )
    return lines


def _sure(run: RunContents, rows: list[ClientRow], moved: dict[str, Any] | None, stable: Stability | None) -> list[str]:
    """Return sentences on how sure the answer is."""
    collaboration = run.collaboration
    assert collaboration is not None
    C = figure(collaboration.C)
    lines = []
    if collaboration.optimal:
        lines.append(f"Proven: for these distances and C = {C}, no other grouping is better.")
    else:
        lines.append(
            f"No grouping can be more than {100 * collaboration.gap:.1f} % better, for these distances and C = {C}."
        )
    if moved is not None and moved["chosen"] is None:
        lines.append("It is not among the answers below, which were found under other conditions or by another search.")
    elif moved is not None:
        segment = moved["segments"][moved["chosen"]]
        factor = segment["right"] / segment["left"]
        firm = "firm" if factor >= 2 else "touchy"
        lines.append(
            f"The answer stays the same for C {segment['words']}: it is {firm} (C is explained below)."
            if segment["words"] != "any"
            else "The answer is the same for every C."
        )
        if moved["chosen"] == moved["suggested"]:
            lines.append("This C is the one that fedcollab suggests from the data.")
        else:
            other = moved["segments"][moved["suggested"]]
            lines.append(
                f"This C was set by hand; fedcollab would suggest {figure(other['C'])} ({other['count']} coalitions)."
            )
    if stable is not None:
        lines.append(_stable(run, stable))
    loose = weakest(rows, collaboration.objective)
    if loose is not None:
        only = "only " if loose["share"] < 0.01 else ""
        lines.append(
            f"The closest call is {loose['name']}: {loose['closest'].lower()} would cost {only}"
            f"{more_in_words(loose['share'])} in total."
        )
    return lines


def _stable(run: RunContents, found: Stability) -> str:
    """Say how often resampled distances give the same partners."""
    least, mean = int(np.argmin(found.same)), float(found.same.mean())
    text = (
        f"With resampled data ({found.replicates} times), a client keeps exactly its partners in {100 * mean:.0f} % "
        "of the cases"
    )
    if found.same[least] < 1:
        text += f"; least sure is {run.names[least]} ({100 * found.same[least]:.0f} %)"
    return text + (
        "." if mean >= CARE else ". Take the exact grouping with care: clients with more data would settle it."
    )
