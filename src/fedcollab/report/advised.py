"""What the page says of an advice: the verdict, the gains that are expected, and what was tried to know them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.advice.gains import LEVEL, Expected
from fedcollab.advice.words import (
    client_gain_in_words,
    gain_figures,
    gain_in_words,
    mean_gain_in_words,
    others_in_words,
    separates_in_words,
)
from fedcollab.metrics import in_units
from fedcollab.report.words import error_words, headline, interval, range_of_names, signed

if TYPE_CHECKING:
    from fedcollab.advice.result import Advice
    from fedcollab.report.run import RunContents

Floats = NDArray[np.float64]

#: more clients than this are drawn as groups
MOST_DRAWN = 60
#: groups by training samples, where the advice has fewer coalitions than two
QUARTERS = 4
#: a probability of gaining from which a gain is called likely, and below which a loss is
LIKELY, UNLIKELY = 0.9, 0.5
#: half the width of an interval of a measured gain on the chart of gains, in standard errors
HALF = NormalDist().inv_cdf(0.5 + LEVEL / 2)


def known(gain: Expected) -> bool:
    """Return whether anything is known of a gain: not so where nobody could be measured."""
    return bool(np.isfinite(gain.mean) and np.isfinite(gain.stderr))


def gain_cell(gain: Expected, metric: str) -> str:
    """Return a gain and its interval in brackets, for a table whose heading names the unit.

    Parameters
    ----------
    gain : Expected
        The gain.
    metric : str
        "accuracy" or "loss".

    Examples
    --------
    >>> gain_cell(Expected(0.031, 0.0168), "accuracy"), gain_cell(Expected(0.0, float("inf")), "loss")
    ('+3.1 (+0.9 to +5.3)', 'not known')
    """
    if not known(gain):
        return "not known"
    mean, low, high = gain_figures(gain, metric)
    return f"{mean} ({low} to {high})"


def client_sentence(advice: Advice, client: str) -> str:
    """Return what a client is expected to gain and how probable that is, for a row that names it and its coalition.

    Parameters
    ----------
    advice : Advice
        The advice.
    client : str
        The client's name.
    """
    gain = advice.gains[client]
    if not known(gain.accuracy):
        return "Gain not known: nobody could be measured."
    weights = dict(zip(advice.names, advice.weights[advice.names.index(client)].tolist(), strict=True))
    if not any(weight > 0 for name, weight in weights.items() if name != client):
        return "Alone."
    text = client_gain_in_words(advice, client).replace(f"{100 * LEVEL:.0f} % interval ", "")
    return f"{text}." if gain.measured else f"{text}, from the others' measurements: it has too few rows."


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
        "gain": _gain(run, advice),
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


def _gain(run: RunContents, advice: Advice) -> list[str]:
    """Return the mean gain over training alone in a sentence each: what is expected, and what training gave."""
    lines = []
    if advice.candidate.kind != "alone":
        mean = advice.candidate.accuracy_gain
        words = mean_gain_in_words(advice) if advice.target else gain_in_words(mean, "accuracy")
        lines.append(f"Expected on average, against training alone: {words if known(mean) else 'not known'}.")
        if measured_gains(run) is not None and run.judgement is not None:
            average = run.judgement.gain("coalitions").average
            points = advice.task.points
            text = f"Measured after training: {signed(average.mean)} {points} on average ({interval(average)})"
            if advice.target:
                text += f"; RMSE {error_words(run.judgement.error_gain('coalitions').average)}"
            lines.append(f"{text}.")
    return lines


def _sure(run: RunContents, advice: Advice) -> list[str]:
    """Return sentences on how many clients will gain, and on those of whom little is known."""
    lines = []
    gains = {name: gain.accuracy for name, gain in advice.gains.items() if known(gain.accuracy)}
    if advice.candidate.kind != "alone":
        likely = sum(gain.probability >= LIKELY for gain in gains.values())
        against = [name for name, gain in gains.items() if gain.probability < UNLIKELY]
        lines.append(
            f"{likely} of {len(advice.names)} clients gain with a probability of at least {100 * LIKELY:.0f} %; "
            + (f"more likely to lose than to gain: {range_of_names(against, 4)}." if against else "none is more likely "
            "to lose than to gain.")
        )  # fmt: skip
    unmeasured = [name for name, gain in advice.gains.items() if not gain.measured]
    if unmeasured:
        lines.append(
            f"Too few training rows to be measured: {range_of_names(unmeasured, 4)}. What they gain is what the "
            "others' measurements suggest."
        )
    if run.judgement is not None and measured_gains(run) is not None and advice.candidate.kind != "alone":
        lines.append(run.judgement.counted("coalitions"))
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
    values: dict[str, dict[str, tuple[float, float, float]]] = {"expected": {}, "measured after training": {}}
    for position, name in enumerate(run.names):
        gain = advice.gains[name].accuracy
        if known(gain):
            values["expected"][name] = (gain.mean, *gain.interval())
        if measured is not None and np.isfinite(measured[0][position]):
            mean, half = float(measured[0][position]), HALF * float(np.nan_to_num(measured[1][position]))
            values["measured after training"][name] = (mean, mean - half, mean + half)
    groups = groups_of(run) if len(run.names) > MOST_DRAWN else {name: [name] for name in run.names}
    order = dict(zip(groups, range(len(groups)), strict=True)) if len(run.names) > MOST_DRAWN else place
    rows = []
    for kind, found in values.items():
        for label, members in groups.items():
            points = np.array([found[name] for name in members if name in found])
            if len(points):
                mean, low, high = (round(100 * float(part), 2) for part in points.mean(axis=0))
                rows.append(
                    {"name": label, "place": order[label], "kind": kind, "gain": mean, "low": low, "high": high}
                )
    return rows


def gains_caption(run: RunContents) -> str:
    """Return what stands below the chart of gains."""
    who = "groups of clients" if len(run.names) > MOST_DRAWN else "each client"
    text = f"What {who} can expect to gain in {run.task.score} over "
    text += f"training alone, in points, with {100 * LEVEL:.0f} % intervals"
    if len(run.names) > MOST_DRAWN:
        text += " of a client there; means over the clients of a group"
    if measured_gains(run) is not None:
        text += ". Diamonds: what training gave on test samples"
    return f"{text}. Above the line is a gain."


def groups_of(run: RunContents) -> dict[str, list[str]]:
    """Return clients in groups: the coalitions, or quarters by training samples where these are too few or too many."""
    labels = np.zeros(len(run.names), dtype=np.int64) if run.collaboration is None else run.collaboration.assignment
    names, sizes = np.array(run.names, dtype=object), np.bincount(labels)
    shared = np.flatnonzero(sizes > 1)
    if 1 < len(shared) <= MOST_DRAWN:
        groups = {
            f"coalition {label + 1} ({sizes[label]} clients)": names[labels == label].tolist() for label in shared
        }
        alone = names[sizes[labels] == 1].tolist()
        return {**groups, **({f"alone ({len(alone)} clients)": alone} if alone else {})}
    order = np.argsort(run.distances.quantities, kind="stable")
    groups = {}
    for number, part in enumerate(np.array_split(order, QUARTERS), 1):
        samples = run.distances.quantities[part]
        label = f"quarter {number}: {samples.min():,} to {samples.max():,} samples"
        groups[label] = [run.names[position] for position in part]
    return groups


def gain_table_rows(advice: Advice, names: Sequence[str]) -> list[tuple[str, str, str, str]]:
    """Return clients with their expected gain (see `gain_unit`), its interval and how probable it is, as text.

    Parameters
    ----------
    advice : Advice
        The advice.
    names : sequence of str
        The clients.
    """
    rows = []
    errors = advice.error_gains
    write = _signed_units if advice.target else signed
    for name in names:
        gain = errors.get(name, Expected(0.0, np.inf)) if advice.target else advice.gains[name].accuracy
        if not known(gain):
            rows.append((name, "not known", "", ""))
            continue
        low, high = gain.interval()
        rows.append(
            (
                name,
                write(gain.mean),
                f"{write(low)} to {write(high)}",
                f"{100 * min(max(gain.probability, 0.01), 0.99):.0f} %",
            )
        )
    return rows


def gain_unit(advice: Advice) -> str:
    """Return in what `gain_table_rows` tells gains: points, or how much lower an error is, in the target's units."""
    if not advice.target:
        return advice.task.points
    return "how much lower MAE is" if advice.target["loss"] == "absolute" else "how much lower RMSE is"


def _signed_units(value: float) -> str:
    """Return a figure in a target's units with its sign."""
    return f"{'' if value < 0 else '+'}{in_units(value)}"
