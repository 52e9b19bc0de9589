"""After training: figures of every way with intervals, curves per coalition, and a verdict per client."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcollab.report.run import RunContents
from fedcollab.report.ways import way_words
from fedcollab.report.words import amount, measure, plus_minus, signed
from fedcollab.uncertainty import UNKNOWN, Estimate

if TYPE_CHECKING:
    from fedcollab.report.judgement import Judgement
    from fedcollab.training import TrainingResult

#: points a curve keeps
POINTS = 80
#: coalitions that get a picture of their curves; the largest come first
PICTURES = 8


def gain_rows(run: RunContents, place: dict[str, int]) -> list[dict[str, Any]]:
    """Return the accuracy of every client by every way of training, with its interval and its place on the axis."""
    rows: list[dict[str, Any]] = []
    if run.judgement is None:
        return rows
    for way in run.results:
        found = run.judgement.accuracy(way)
        for client, name in enumerate(run.names):
            one = found[client]
            if not np.isfinite(one.mean):
                continue
            row: dict[str, Any] = {"name": name, "place": place[name], "way": run.judgement.ways[way]}
            row["accuracy"] = round(one.mean, 4)
            if np.isfinite(one.low):
                row |= {"low": round(one.low, 4), "high": round(one.high, 4)}
            rows.append(row)
    return rows


def summary_rows(judgement: Judgement) -> list[dict[str, Any]]:
    """Return the figures of every way of training, means over clients, and last those of the most frequent class."""
    figures = judgement.figures()["results"]
    rows = []
    for way in judgement.results:
        accuracy, found = judgement.accuracy(way), figures[way]
        gain = judgement.gain(way).average if "local" in judgement.results and way != "local" else None
        rows.append(
            {
                "way": judgement.ways[way],
                "mean": _percent(accuracy.average),
                "gain": "–" if gain is None else f"{signed(gain.mean)}{plus_minus(gain)}",
                "verdict": "" if gain is None or gain.verdict == UNKNOWN else gain.verdict,
                "worst": f"{amount(np.nanmin(accuracy.mean))} %",
                "ipr": measure(found["ipr"], 100, " %", 0, "–"),
                "rsd": measure(found["rsd"], 100, " points", 1, "–"),
                "further": [each.text(found[f"mean_{each.key}"], "–") for each in judgement.task.further],
                "loss": measure(found["mean_loss"], 1, "", 3, "–"),
                "best": way == "coalitions",
            }
        )
    if judgement.majority is not None:
        empty = {**dict.fromkeys(("gain", "worst", "ipr", "rsd", "loss"), "–"), "further": ["–"] * 2}
        mean = _percent(judgement.majority.average)
        rows.append({"way": judgement.task.constant_short, "mean": mean, "verdict": "", "best": False, **empty})
    return rows


def _percent(found: Estimate) -> str:
    """Return a mean accuracy over clients with half its interval."""
    return f"{amount(found.mean)}{plus_minus(found)} %"


def curve_rows(run: RunContents) -> list[dict[str, Any]]:
    """Return, for each coalition that gets a picture, the mean accuracy of its clients by round and way of training."""
    groups = _groups(run)
    known = {way: _by_client(result) for way, result in run.results.items()}
    ways = way_words(run.results, run.advice)
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
                rows.append({"round": round_, "way": ways[way], "accuracy": value})
        title = f"Coalition {number}" if len(members) > 1 else f"{members[0]}, alone"
        if rows:
            pictures.append({"coalition": number, "title": title, "clients": len(members), "rows": rows})
    return sorted(pictures, key=lambda picture: picture["coalition"])


def domain(pictures: list[dict[str, Any]]) -> list[float]:
    """Return least and greatest accuracy of all curves, for one common axis."""
    values = [row["accuracy"] for picture in pictures for row in picture["rows"]]
    return [max(min(0.0, min(values)), min(values) - 0.02), min(1.0, max(values) + 0.02)]


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
    key = f"personal_{result.scores.task.key}" if result.personal else result.scores.task.key
    found: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in result.history:
        if row.get(key) is not None:
            found[row["client"]].append((int(row["round"]), float(row[key])))
    return found


def _thin(count: int) -> list[int]:
    """Return at most `POINTS` positions, first and last among them."""
    return sorted(set(np.linspace(0, count - 1, min(count, POINTS)).round().astype(int).tolist())) if count else []
