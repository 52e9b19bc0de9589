"""What the page says of an advice: the verdict, the gains that are expected, and what was tried to know them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.advice.result import LEVEL, Expected
from fedcollab.advice.words import explain_client, gain_in_words, others_in_words, separates_in_words
from fedcollab.coalitions import personal_weights
from fedcollab.report.differences import PAIRS
from fedcollab.report.ways import ADVISED
from fedcollab.report.words import figure, headline, interval, range_of_names, signed

if TYPE_CHECKING:
    from fedcollab.advice.result import Advice, Candidate
    from fedcollab.report.run import RunContents

Floats = NDArray[np.float64]

#: more clients than this are drawn as groups
NAMED = 60
#: groups by training samples, where the advice has fewer coalitions than two
QUARTERS = 4
#: a probability of gaining from which a gain is called likely, and below which a loss is
LIKELY, UNLIKELY = 0.9, 0.5
#: half the width of an interval of a measured gain on the chart of gains, in standard errors
HALF = NormalDist().inv_cdf(0.5 + LEVEL / 2)


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


def known(gain: Expected) -> bool:
    """Return whether anything is known of a gain: not so where nobody could be measured."""
    return bool(np.isfinite(gain.mean) and np.isfinite(gain.stderr))


def told(gain: Expected, metric: str) -> str:
    """Return a gain and its interval as text, without the probability.

    Parameters
    ----------
    gain : Expected
        The gain.
    metric : str
        "accuracy" (said in points) or "loss".

    Examples
    --------
    >>> told(Expected(0.031, 0.0168), "accuracy"), told(Expected(0.0, float("inf")), "loss")
    ('+3.1 points (80 % interval +0.9 to +5.3)', 'not known')
    """
    return gain_in_words(gain, metric).split(", probability")[0] if known(gain) else "not known"


def client_sentence(advice: Advice, client: str) -> str:
    """Return with whom a client should train, what it gains and how probable that is, in a sentence.

    Parameters
    ----------
    advice : Advice
        The advice.
    client : str
        The client's name.
    """
    if not known(advice.gains[client].accuracy):
        return f"{client}: what it gains is not known, nobody could be measured."
    return explain_client(advice, client).partition("\n")[0]


def answer_lines(run: RunContents, advice: Advice) -> dict[str, Any]:
    """Return what the first section says of an advice: the verdict, why, how sure, and what the cards below are.

    Parameters
    ----------
    run : RunContents
        The run.
    advice : Advice
        Its advice.
    """
    own = advice.candidate.kind == "own weights"
    return {
        "headline": str(advice).partition("\n")[0].removesuffix("."),
        "cards": "As coalitions, without own weights, these would be best:" if own else "",
        "why": _why(run, advice),
        "sure": _sure(run, advice),
    }


def _why(run: RunContents, advice: Advice) -> list[str]:
    """Return sentences on what else was considered, and on what separates the clients."""
    tried = len(advice.candidates)
    lines = [
        f"{tried} ways of training were tried on a part of the training rows and measured on the rest, before anyone "
        "commits; test rows were not looked at."
    ]
    lines += others_in_words(advice)
    if run.path is not None and run.collaboration is not None:
        labels = np.asarray(run.path.suggested.assignment)
        if not np.array_equal(labels, run.collaboration.assignment):
            groups = [np.array(run.names)[labels == label].tolist() for label in range(int(labels.max()) + 1)]
            text = headline(groups, run.names)
            lines.append(f"Distances alone would have suggested otherwise: {text[0].lower()}{text[1:]}.")
    return lines + separates_in_words(advice)


def _sure(run: RunContents, advice: Advice) -> list[str]:
    """Return sentences on the gain that is expected, on how many clients will gain, and on what came true."""
    lines = []
    gains = {name: gain.accuracy for name, gain in advice.gains.items() if known(gain.accuracy)}
    if advice.candidate.kind != "alone":
        mean = advice.candidate.accuracy_gain
        words = gain_in_words(mean, "accuracy") if known(mean) else "not known"
        lines.append(f"Expected on average, against training alone: {words}.")
        likely = sum(gain.probability >= LIKELY for gain in gains.values())
        against = [name for name, gain in gains.items() if gain.probability < UNLIKELY]
        lines.append(
            f"{likely} of {len(advice.names)} clients gain with a probability of at least {LIKELY:.0%}; "
            + (f"more likely to lose than to gain: {range_of_names(against, 4)}." if against else "none is more likely "
            "to lose than to gain.")
        )  # fmt: skip
    unmeasured = [name for name, gain in advice.gains.items() if not gain.measured]
    if unmeasured:
        lines.append(
            f"Too few training rows to be measured: {range_of_names(unmeasured, 4)}. What they gain is what the others' "
            "measurements suggest."
        )
    measured = measured_gains(run)
    if measured is not None and run.judgement is not None:
        average = run.judgement.gain("coalitions").average
        lines.append(f"Measured after training: {signed(average.mean)} points on average ({interval(average)}).")
    return lines


def measured_gains(run: RunContents) -> tuple[Floats, Floats] | None:
    """Return each client's measured gain over training alone and its standard error; None if not trained as advised."""
    judgement = run.judgement
    if judgement is None or "local" not in run.results or "coalitions" not in run.results or judgement.astray:
        return None
    gain = judgement.gain("coalitions")
    return gain.mean, gain.stderr


def expected_rows(run: RunContents, advice: Advice, place: dict[str, int]) -> list[dict[str, Any]]:
    """Return the rows of the chart of gains, in points: expected and, where that is known, measured.

    Parameters
    ----------
    run : RunContents
        The run.
    advice : Advice
        Its advice.
    place : dict of int
        Each client's place on the axis.

    Returns
    -------
    list of dict
        One row for each client (or group, where there are too many clients) and kind of gain; empty where training
        alone is advised, or nothing is known.
    """
    if advice.candidate.kind == "alone":
        return []
    measured = measured_gains(run)
    kinds = {"expected": {}} if measured is None else {"expected": {}, "measured after training": {}}
    values: dict[str, dict[str, tuple[float, float, float]]] = dict(kinds)
    for position, name in enumerate(run.names):
        gain = advice.gains[name].accuracy
        if known(gain):
            values["expected"][name] = (gain.mean, *gain.interval())
        if measured is not None and np.isfinite(measured[0][position]):
            mean, half = float(measured[0][position]), HALF * float(np.nan_to_num(measured[1][position]))
            values["measured after training"][name] = (mean, mean - half, mean + half)
    groups = _groups(run, advice) if len(run.names) > NAMED else {name: [name] for name in run.names}
    order = dict(zip(groups, range(len(groups)), strict=True)) if len(run.names) > NAMED else place
    rows = []
    for kind, found in values.items():
        for label, members in groups.items():
            told = np.array([found[name] for name in members if name in found])
            if len(told):
                mean, low, high = (round(100 * float(part), 2) for part in told.mean(axis=0))
                rows.append(
                    {"name": label, "place": order[label], "kind": kind, "gain": mean, "low": low, "high": high}
                )
    return rows


def _groups(run: RunContents, advice: Advice) -> dict[str, list[str]]:
    """Return clients in groups: the coalitions, or quarters by training samples where all are in one coalition."""
    numbered = [(number, members) for number, members in enumerate(advice.coalitions, 1) if len(members) > 1]
    alone = [members[0] for members in advice.coalitions if len(members) == 1]
    if 1 < len(numbered) <= NAMED:
        groups = {f"coalition {number} ({len(members)} clients)": members for number, members in numbered}
        return {**groups, **({f"alone ({len(alone)} clients)": alone} if alone else {})}
    order = np.argsort(run.distances.quantities, kind="stable")
    groups = {}
    for number, part in enumerate(np.array_split(order, QUARTERS), 1):
        sizes = run.distances.quantities[part]
        label = f"quarter {number}: {sizes.min():,} to {sizes.max():,} samples"
        groups[label] = [run.names[position] for position in part]
    return groups


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
    largest = np.sort(np.argsort(-np.bincount(labels), kind="stable")[:NAMED])
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
        "caption": _caption(run, advice),
        "measured": measured_gains(run) is not None,
        "way": ADVISED,
    }


def _caption(run: RunContents, advice: Advice) -> str:
    """Return what stands below the chart of gains."""
    text = (
        f"What {'groups of clients' if len(run.names) > NAMED else 'each client'} can expect to gain in accuracy over "
    )
    text += f"training alone, in points, with {LEVEL:.0%} intervals"
    if len(run.names) > NAMED:
        text += " of a client there; means over the clients of a group"
    if measured_gains(run) is not None:
        text += ". Diamonds: what training gave on test samples"
    return f"{text}. Above the line is a gain."


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
        "loss": "–" if alone else told(candidate.gain, "loss"),
        "accuracy": "–" if alone else told(candidate.accuracy_gain, "accuracy"),
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
    text = f"By the bound at C = {figure(advice.C)}, own weights are {f'better by {100 * lower:.1f} %' if lower >= 0.0005 else 'no better'}"
    text += " than these coalitions: coalitions are special weights, so they are never worse."
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
        "Whose data (columns) weigh how much in whose model (rows), sorted by coalition: from 0 (bright) to 1 (dark)."
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
    text = (
        f"Fitted to {fit['pairs']} measured gains, the bound says that little data costs a = {figure(a)} in log loss "
    )
    text += f"(times 1/√samples) and distance b = {figure(b)}"
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
    effect = f"own coefficients lower the held-out error by {100 * max(0.0, float(row['helps'])):.1f} %"
    matters = "the rule changes with it" if row["matters"] else "the rule does not change with it"
    return f"{row['column']}: clients' means differ by {float(row['apart']):.1f} of its spread within a client; {effect}: {matters}."


def gain_table_rows(advice: Advice, names: Sequence[str]) -> list[tuple[str, str, str, str]]:
    """Return clients with their expected gain in points, its interval and the probability of gaining, as text.

    Parameters
    ----------
    advice : Advice
        The advice.
    names : sequence of str
        The clients.
    """
    rows = []
    for name in names:
        gain = advice.gains[name].accuracy
        if not known(gain):
            rows.append((name, "not known", "", ""))
            continue
        low, high = gain.interval()
        rows.append((name, signed(gain.mean), f"{signed(low)} to {signed(high)}", f"{gain.probability:.0%}"))
    return rows
