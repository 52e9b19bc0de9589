"""The page's section on distances: words, a table for few clients, and the rows of its charts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcollab import files as artefact
from fedcollab.distances import Distances

if TYPE_CHECKING:
    from fedcollab.report.run import RunContents

TELL = (
    "It was estimated without moving any sample: a small model, trained by both clients together, tries to tell whose "
    "sample it sees. The better it can, the more the data differ."
)
#: how the distances were had, for the methods that do it otherwise
HOW = {
    "given": "The distances were given.",
    "label": "It compares which share of the samples has which label, and nothing else.",
    "prototype": "It compares the average sample of each label.",
    "hypothesis": "It was estimated without moving any sample: a model is trained to be right for one client and wrong "
    "for the other. The better that works, the more the data differ.",
}
PARTED = " The answer is clear-cut if pairs in the same coalition are far left of the others."
#: half the width of a 90 % interval, in standard errors
HALF = 1.645
#: label shares that are drawn at most, over all clients
SHARES = 6000
#: a table of all distances is given up to this many clients
TABLE = 24
#: beyond this many clients the page shows distances between coalitions, so many of the largest at most
PAIRS, COALITIONS = 300, 40
#: bins of the histogram of distances
BINS = 25


def many_clients(run: RunContents) -> bool:
    """Return whether there are too many clients to draw each pair: the page then shows coalitions first."""
    return run.collaboration is not None and len(run.names) > PAIRS


def between_coalitions(distances: Distances, labels: NDArray[np.int64]) -> Distances:
    """Return the mean distance between the largest coalitions, as distances of coalitions.

    Parameters
    ----------
    distances : Distances
        The distances of the clients.
    labels : array of int
        Each client's coalition, 0..K-1.
    """
    sizes = np.bincount(labels)
    largest = np.sort(np.argsort(-sizes, kind="stable")[:COALITIONS])
    member = (labels == largest[:, None]).astype(np.float64)
    known = distances.observed & ~np.eye(len(labels), dtype=bool)
    pairs = member @ known @ member.T
    sums = member @ np.where(known, distances.matrix, 0.0) @ member.T
    mean = np.divide(sums, pairs, out=np.full_like(sums, np.nan), where=pairs > 0)
    mean = (mean + mean.T) / 2  # equal up to rounding
    np.fill_diagonal(mean, 0.0)
    names = tuple(f"{label + 1} ({sizes[label]} clients)" for label in largest.tolist())
    masses = np.bincount(labels, weights=distances.quantities)[largest]
    return Distances(mean, names, masses.astype(np.int64), method=distances.method)


def distance_words(run: RunContents) -> dict[str, Any]:
    """Return the texts of the section: how distances were estimated, what stands out, and captions."""
    distances = run.distances
    matrix, names = distances.matrix, run.names
    count = len(names)
    pairs = np.argwhere(np.triu(distances.observed, 1))
    values = matrix[tuple(pairs.T)]
    facts = encoder_facts(run)
    if len(pairs):
        near, far = (tuple(pairs[at].tolist()) for at in (values.argmin(), values.argmax()))
        for word, pair in (("Most alike", near), ("Most different", far)):
            sure = "" if distances.stderr is None else f" ± {HALF * distances.stderr[pair]:.2f}"
            facts.append(f"{word}: {names[pair[0]]} and {names[pair[1]]} ({matrix[pair]:.2f}{sure}).")
    if distances.stderr is not None and len(pairs):
        typical = float(np.median(distances.stderr[tuple(pairs.T)]))
        facts.append(
            f"A typical distance is known to ± {HALF * typical:.2f} (90 % interval). Small clients are less certain."
        )
    elif count > 1:
        facts.append("How certain the distances are is not known: the method gave no standard errors.")
    unknown = count * (count - 1) // 2 - len(pairs)
    if unknown:
        were = "pair was" if unknown == 1 else "pairs were"
        facts.append(f"{unknown:,} {were} never measured: such clients are kept apart.")
    return {
        "how": HOW.get(distances.method, TELL),
        "measured": distances.method != "given",
        "facts": facts,
        "caption": _caption(run),
        "spread": "How the distances are spread." + PARTED * (run.collaboration is not None),
        "labels": "Which labels each client has. Clients with the same columns see the same kind of cases.",
        "has_error": distances.stderr is not None,
        "table": _distance_table(run) if count <= TABLE else [],
    }


def _caption(run: RunContents) -> str:
    """Return what stands below the matrix of the section."""
    if many_clients(run):
        return "Average distance between every two of the largest coalitions. Dark: different. Hover for the figures."
    if run.path is not None:
        return (
            "How uncertain each distance is (standard error), sorted by coalition. Dark: less sure. Hover for figures."
        )
    return "Distance between every two clients. Bright: alike. Dark: different. Hover for the figures."


def encoder_facts(run: RunContents) -> list[str]:
    """Return sentences on the encoder that images were compared through, and what `fedcollab check-encoder` found."""
    encoder = run.distances.settings.get("encoder")
    if encoder is None:
        return []
    facts = [f"Samples were compared through the frozen encoder {encoder}, which every client ran on its own."]
    checked = run.directory / "encoder.json"
    if checked.is_file():
        content = artefact.read_json(checked, "encoder")
        if content.get("encoder") == encoder:
            facts += str(content.get("words", "")).splitlines()
    else:
        facts.append("Whether it sees what matters was not checked: fedcollab check-encoder.")
    return facts


def _distance_table(run: RunContents) -> list[tuple[str, list[str]]]:
    """Return the distances as rows of a table, with their uncertainty."""
    distances = run.distances
    table = []
    for i, name in enumerate(run.names):
        cells = []
        for j in range(len(run.names)):
            text = f"{distances.matrix[i, j]:.2f}" if distances.observed[i, j] else "not measured"
            if distances.stderr is not None and distances.observed[i, j]:
                text += f" ± {HALF * distances.stderr[i, j]:.2f}"
            cells.append("" if i == j else text)
        table.append((name, cells))
    return table


def spread_rows(run: RunContents) -> list[dict[str, Any]]:
    """Return how many pairs lie at each distance, inside coalitions and between them."""
    matrix, labels = run.distances.matrix, None if run.collaboration is None else run.collaboration.assignment
    upper = np.triu(run.distances.observed, 1)
    kinds = {"all pairs": upper}
    if labels is not None:
        same = labels[:, None] == labels[None, :]
        kinds = {"in the same coalition": upper & same, "in different coalitions": upper & ~same}
    top = max(0.05, float(matrix[upper].max(initial=0.0)))
    edges = np.linspace(0.0, min(1.0, top * 1.0001), BINS + 1)
    rows = []
    for kind, mask in kinds.items():
        found, _ = np.histogram(matrix[mask], edges)
        rows += [
            {"kind": kind, "low": round(float(low), 5), "high": round(float(high), 5), "pairs": int(pairs)}
            for low, high, pairs in zip(edges, edges[1:], found, strict=False)
            if pairs
        ]
    return rows


def quantity_rows(run: RunContents, place: dict[str, int]) -> list[dict[str, Any]]:
    """Return the training samples of each client, with its place on the axis."""
    pairs = zip(run.names, run.distances.quantities.tolist(), strict=True)
    return [{"name": name, "place": place[name], "samples": samples} for name, samples in pairs]


def label_rows(run: RunContents, place: dict[str, int]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return each client's label shares, and the labels to draw: all, or those that differ most between clients."""
    described = run.config.get("clients", {})
    counts = {name: described[name].get("label_counts") or {} for name in run.names if name in described}
    if not counts:
        return [], []
    share = {
        name: {str(label): samples / max(1, sum(found.values())) for label, samples in found.items()}
        for name, found in counts.items()
    }
    labels = list(dict.fromkeys(label for found in share.values() for label in found))
    varies = {label: np.std([found.get(label, 0.0) for found in share.values()]) for label in labels}
    kept = sorted(labels, key=lambda label: -varies[label])[: max(1, SHARES // len(counts))]
    rows = [
        {"name": name, "place": place[name], "label": label, "share": round(found.get(label, 0.0), 4)}
        for name, found in share.items()
        for label in sorted(kept, key=_natural)
    ]
    return rows, sorted(kept, key=_natural)


def _natural(label: str) -> tuple[int, float, str]:
    """Return a key that sorts numbers by size, then words by letter."""
    try:
        return 0, float(label), label
    except ValueError:
        return 1, 0.0, label
