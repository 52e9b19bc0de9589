"""The page's section on what was measured before training: what was tried, weights, the fitted bound, and columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.advice.words import separates_in_words
from fedcollab.coalitions import personal_weights
from fedcollab.report.advised import MOST_DRAWN, gain_cell, gains_caption, known
from fedcollab.report.differences import PAIRS
from fedcollab.report.words import figure

if TYPE_CHECKING:
    from fedcollab.advice.result import Advice, Candidate
    from fedcollab.report.run import RunContents

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Weights:
    """The picture of the weights: rows are models, columns whose data they learn from.

    Parameters
    ----------
    names : list of str
        Clients in the order of the coalitions; coalitions, where there are too many clients.
    matrix : array
        What the data of each column weigh in the model of each row; rows sum to 1, as far as they are shown.
    """

    names: list[str]
    matrix: Floats


def weight_picture(run: RunContents, advice: Advice) -> Weights | None:
    """Return the picture of the weights, or None where there is nothing to see.

    Parameters
    ----------
    run : RunContents
        The run.
    advice : Advice
        Its advice.
    """
    if advice.candidate.kind == "alone" or run.collaboration is None or len(run.names) < 2:
        return None
    labels = run.collaboration.assignment
    if len(run.names) <= PAIRS:
        order = np.argsort(labels, kind="stable")
        return Weights([run.names[client] for client in order], advice.weights[np.ix_(order, order)])
    largest = np.sort(np.argsort(-np.bincount(labels), kind="stable")[:MOST_DRAWN])
    if len(largest) < 2:
        return None
    member = (labels == largest[:, None]).astype(np.float64)
    names = [f"{label + 1} ({int(size)} clients)" for label, size in zip(largest, member.sum(axis=1), strict=True)]
    return Weights(names, member @ advice.weights @ member.T / member.sum(axis=1, keepdims=True))


def advice_section(run: RunContents) -> dict[str, Any] | None:
    """Return the content of the section on what was measured, or None where there is no advice.

    Parameters
    ----------
    run : RunContents
        The run.
    """
    advice = run.advice
    if advice is None:
        return None
    return {
        "candidates": [_candidate_row(each, each is advice.candidate) for each in advice.candidates],
        "against": _against(run, advice),
        "against_words": _against_words(run, advice),
        "weights": _weights_words(advice),
        "fit": fit_words(advice),
        "separates": separates_in_words(advice),
        "columns": [_column_words(row) for row in advice.separates],
        "caption": gains_caption(run),
    }


def _candidate_row(candidate: Candidate, advised: bool) -> dict[str, Any]:
    """Return one candidate's row of the table."""
    alone = candidate.kind == "alone"
    rounds = sorted(set(candidate.rounds))
    remark = "advised" if advised else "ended early: clearly behind" if candidate.dropped else ""
    losses = [row[0] for row in candidate.held_out.values() if row[0] is not None]
    return {
        "label": candidate.label,
        "advised": advised,
        "remark": remark,
        "loss": "–" if alone else gain_cell(candidate.gain, "loss"),
        "accuracy": "–" if alone else gain_cell(candidate.accuracy_gain, "accuracy"),
        "held_out": f"{np.mean(losses):.3f}" if losses else "–",
        "rounds": "–" if not rounds else str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}",
    }


def _rivals(advice: Advice) -> tuple[Candidate | None, Candidate | None]:
    """Return the best candidate with hard coalitions (everyone and alone included), and that with own weights."""
    hard = [each for each in advice.candidates if each.kind != "own weights" and not each.dropped]
    own = [each for each in advice.candidates if each.kind == "own weights"]
    best = advice.candidate if advice.candidate in hard else max(hard, key=lambda each: each.gain.mean, default=None)
    return best, max(own, key=lambda each: each.gain.mean, default=None)


def _against(run: RunContents, advice: Advice) -> list[dict[str, str]]:
    """Return the rows of the table of hard coalitions against own weights: the bound, and the measurement."""
    if run.collaboration is None or len(run.names) < 2:
        return []
    count = len(run.names)
    bounds = (run.collaboration.objective / count, float(personal_weights(run.distances, None, advice.C)[1].mean()))
    rows = []
    for words, bound, candidate in zip(("hard coalitions", "own weights"), bounds, _rivals(advice), strict=True):
        row = {"way": words, "bound": figure(bound), "label": "not tried", "loss": "–", "gain": "–"}
        if candidate is not None:
            found = _candidate_row(candidate, False)
            row |= {"label": candidate.label, "loss": found["held_out"], "gain": found["loss"]}
        rows.append(row)
    return rows


def _against_words(run: RunContents, advice: Advice) -> str:
    """Return what the bound and the measurement say about hard coalitions and own weights, in words."""
    if run.collaboration is None or len(run.names) < 2:
        return ""
    objective, least = run.collaboration.objective, float(personal_weights(run.distances, None, advice.C)[1].sum())
    lower = 1 - least / objective if objective > 0 else 0.0
    better = f"better by {100 * lower:.1f} % than" if lower >= 0.0005 else "no better than"
    text = f"By the bound at C = {figure(advice.C)}, own weights are {better} these coalitions (never worse: "
    text += "coalitions are special weights)."
    hard, own = _rivals(advice)
    if own is None:
        return f"{text} They were not tried: cheaper measurements did not promise enough, or they were not allowed."
    if hard is None or not (known(own.gain) and known(hard.gain)):
        return text
    more = own.gain.mean - hard.gain.mean
    verdict = "lower" if more > 0 else "higher"
    return f"{text} Measured, the loss that is expected of them is {verdict} by {abs(more):.3f} than in coalitions."


def _weights_words(advice: Advice) -> str:
    """Return what stands below the picture of the weights."""
    text = (
        "Whose data (columns) weigh how much in whose model (rows), sorted by coalition: from 0 (bright) to 1 (dark), "
        "with more colours for small weights."
    )
    if advice.algorithm == "ditto":
        text += " With Ditto these are the weights in the model of the coalition, to which each client's own is drawn."
    return f"{text} Hover for the figures."


def fit_words(advice: Advice) -> str:
    """Return what the bound says that was fitted to the measurements, and how well it fits, in words.

    Parameters
    ----------
    advice : Advice
        The advice.
    """
    fit = advice.fit
    if not fit.get("pairs"):
        return "The bound could not be fitted: too little was measured."
    a, b, explained = float(fit["a"]), float(fit["b"]), float(fit["explained"])
    text = f"Fitted to {fit['pairs']} measured gains, the bound says that little data costs a = {figure(a)} in "
    text += f"{advice.task.loss} (times 1/√samples) and distance b = {figure(b)}"
    if fit.get("C") is not None:
        text += f", so that C = a / b = {figure(float(fit['C']))} for this model and these data"
    else:
        nothing = "nor more data matter" if a == 0 and b == 0 else "does not matter" if b == 0 else "alone matters"
        text += f": distance {nothing}, as far as could be measured, and there is no C"
    if explained < 0.005:
        return f"{text}; it explains nothing of how gains differ, so take it as no more than a rule of thumb."
    return f"{text}; it explains {100 * explained:.0f} % of how gains differ between clients and ways of training."


def _column_words(row: Any) -> str:
    """Return how far clients differ in a column, and whether that matters, in words."""
    apart = f"clients' means differ by {float(row['apart']):.1f} times its spread within a client"
    effect = f"own coefficients lower the held-out error by {100 * max(0.0, float(row['helps'])):.1f} %"
    matters = "the rule changes with it" if row["matters"] else "the rule does not change with it"
    return f"{row['column']}: {apart}; {effect}: {matters}."
