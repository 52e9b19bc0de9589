"""After training: curves per coalition, gains, IPR, RSD and a verdict per client."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcollab import metrics
from fedcollab.report.run import RunContents
from fedcollab.runs.run import WAYS

if TYPE_CHECKING:
    from fedcollab.training import TrainingResult

#: points a curve keeps
POINTS = 80
#: coalitions that get a picture of their curves; the largest come first
PICTURES = 8


def gain_rows(run: RunContents, place: dict[str, int]) -> list[dict[str, Any]]:
    """Return the accuracy of every client by every way of training, with its place on the axis."""
    rows = []
    for way in run.results:
        for name, value in zip(run.names, accuracy(run, way), strict=True):
            if np.isfinite(value):
                rows.append({"name": name, "place": place[name], "way": WAYS[way], "accuracy": round(float(value), 4)})
    return rows


def accuracy(run: RunContents, way: str) -> NDArray[np.float64]:
    """Return each client's accuracy, NaN where it was not trained that way."""
    values = run.accuracy(way)
    return np.full(len(run.names), np.nan) if values is None else values


def summary_rows(run: RunContents) -> list[dict[str, Any]]:
    """Return mean and worst accuracy, IPR and RSD of every way of training."""
    local = run.accuracy("local")
    rows = []
    for way in run.results:
        values = accuracy(run, way)
        both = None if local is None or way == "local" else np.isfinite(values) & np.isfinite(local)
        rows.append(
            {
                "way": WAYS[way],
                "mean": float(np.nanmean(values)),
                "worst": float(np.nanmin(values)),
                "ipr": metrics.ipr(values[both], local[both]) if both is not None and local is not None else None,
                "rsd": metrics.rsd(values[both], local[both]) if both is not None and local is not None else None,
                "best": way == "coalitions",
            }
        )
    return rows


def verdict_rows(run: RunContents) -> list[str]:
    """Return a sentence for every client that was trained both alone and in its coalition."""
    ours, local = run.accuracy("coalitions"), run.accuracy("local")
    if ours is None or local is None:
        return []
    both, everyone = np.isfinite(ours) & np.isfinite(local), run.accuracy("global")
    names = [name for name, known in zip(run.names, both, strict=True) if known]
    return metrics.verdicts(names, ours[both], local[both], None if everyone is None else everyone[both])


def sentence(run: RunContents) -> str:
    """Say in a sentence or two what training gave."""
    local, everyone, ours = (run.accuracy(way) for way in ("local", "global", "coalitions"))
    count = len(run.names)
    parts = []
    if local is not None and ours is not None:
        mean = 100 * float(np.nanmean(ours - local))
        better, same, worse = (int(test.sum()) for test in (ours > local, ours == local, ours < local))
        words = [f"{better} of {count} clients get a better model than alone"]
        words += [f"{same} an equally good one"] if same else []
        words += [f"{worse} a worse one"] if worse else []
        parts.append(
            f"In coalitions, {', '.join(words)} ({'+' if mean >= 0 else '−'}{abs(mean):.1f} points on average)."
        )
    if local is not None and everyone is not None:
        worse = int((everyone < local).sum())
        parts.append(
            f"With everyone together, {worse} of {count} get a worse model than alone."
            if worse
            else "With everyone together, nobody gets a worse model than alone."
        )
    return " ".join(parts)


def curve_rows(run: RunContents) -> list[dict[str, Any]]:
    """Return, for each coalition that gets a picture, the mean accuracy of its clients by round and way of training."""
    groups = _groups(run)
    known = {way: _by_client(result) for way, result in run.results.items()}
    pictures = []
    for number, members in sorted(groups, key=lambda group: -len(group[1]))[:PICTURES]:
        rows = []
        for way, histories in known.items():
            by_round: dict[int, list[float]] = defaultdict(list)
            for name in members:
                for round_, value in histories.get(name, ()):
                    by_round[round_].append(value)
            rounds = sorted(by_round)
            for round_ in (rounds[i] for i in _thin(len(rounds))):
                value = round(float(np.mean(by_round[round_])), 4)
                rows.append({"round": round_, "way": WAYS[way], "accuracy": value})
        title = f"Coalition {number}" if len(members) > 1 else f"{members[0]}, alone"
        if rows:
            pictures.append({"coalition": number, "title": title, "clients": len(members), "rows": rows})
    return sorted(pictures, key=lambda picture: picture["coalition"])


def domain(pictures: list[dict[str, Any]]) -> list[float]:
    """Return least and greatest accuracy of all curves, for one common axis."""
    values = [row["accuracy"] for picture in pictures for row in picture["rows"]]
    return [max(0.0, min(values) - 0.02), min(1.0, max(values) + 0.02)]


def _groups(run: RunContents) -> list[tuple[int, list[str]]]:
    """Return the coalitions by number, counted from 1."""
    if run.collaboration is not None:
        labels = run.collaboration.assignment
        return [
            (label + 1, [run.names[i] for i in np.flatnonzero(labels == label)]) for label in range(labels.max() + 1)
        ]
    result = run.results.get("coalitions")
    return [(1, list(run.names))] if result is None else list(enumerate(result.coalitions, 1))


def _by_client(result: TrainingResult) -> dict[str, list[tuple[int, float]]]:
    """Return rounds and accuracies of each client, of its personal model where there is one."""
    key = "accuracy" if result.personal_accuracy is None else "personal_accuracy"
    found: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in result.history:
        if row.get(key) is not None:
            found[row["client"]].append((int(row["round"]), float(row[key])))
    return found


def _thin(count: int) -> list[int]:
    """Return at most `POINTS` positions, first and last among them."""
    return sorted(set(np.linspace(0, count - 1, min(count, POINTS)).round().astype(int).tolist())) if count else []
