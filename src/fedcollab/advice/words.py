"""An advice in sentences, for the terminal, the page and `explain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedcollab.advice.gains import LEVEL, Expected
from fedcollab.metrics import lower

if TYPE_CHECKING:
    from fedcollab.advice.result import Advice

ALGORITHMS = {
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "ditto": "Ditto",
    "own-intercept": "FedAvg",
    "own-weights": "own weights",
}
#: clients that are named in a list before the rest is counted
NAMED = 6


def how_in_words(algorithm: str, keep: Sequence[str]) -> str:
    """Return an algorithm in words.

    Parameters
    ----------
    algorithm : str
        Its name.
    keep : sequence of str
        Parameters that stay with each client.

    Examples
    --------
    >>> how_in_words("ditto", ("output-bias",)), how_in_words("fedavg", ())
    ('Ditto with an own intercept', 'FedAvg')
    """
    own = bool(keep) or algorithm == "own-intercept"
    return ALGORITHMS.get(algorithm, algorithm) + (" with an own intercept" if own else "")


def gain_in_words(gain: Expected, metric: str, points: str = "points") -> str:
    """Return a gain with its interval and the probability of gaining.

    Parameters
    ----------
    gain : Expected
        The gain.
    metric : str
        "accuracy" (said in points) or "loss".
    points : str
        What points are called (`Task.points`).

    Examples
    --------
    >>> from fedcollab.advice.gains import Expected
    >>> gain_in_words(Expected(0.031, 0.0168), "accuracy")
    '+3.1 points (80 % interval +0.9 to +5.3), probability of gaining .97'
    """
    mean, low, high = gain_figures(gain, metric)
    unit = points if metric == "accuracy" else "in loss"
    return f"{mean} {unit} ({100 * LEVEL:.0f} % interval {low} to {high}), {_probability(gain)}"


def gain_figures(gain: Expected, metric: str) -> list[str]:
    """Return a gain and the ends of its interval as text: in points for "accuracy", else in loss."""
    scale, digits = (100, 1) if metric == "accuracy" else (1, 3)
    return [_signed(scale * value, digits) for value in (gain.mean, *gain.interval())]


def error_in_words(gain: Expected, loss: str) -> str:
    """Return by how much an error will be lower, in the units of a numeric target.

    Parameters
    ----------
    gain : Expected
        By how much it is lower.
    loss : str
        The loss of the models, which says which error it is.

    Examples
    --------
    >>> from fedcollab.advice.gains import Expected
    >>> error_in_words(Expected(0.31, 0.4), "squared")
    'RMSE 0.31 lower (80 % interval 0.203 higher to 0.823 lower), probability of gaining .78'
    """
    low, high = gain.interval()
    ends = f"{100 * LEVEL:.0f} % interval {lower(low)} to {lower(high)}"
    return f"{'MAE' if loss == 'absolute' else 'RMSE'} {lower(gain.mean)} ({ends}), {_probability(gain)}"


def _probability(gain: Expected) -> str:
    """Return the probability of gaining in words."""
    probability = min(max(gain.probability, 0.01), 0.99)
    return f"probability of gaining {f'{probability:.2f}'.lstrip('0')}"


def summarise(advice: Advice) -> str:
    """Return the advice in a few lines: the verdict, who and how, and what it is expected to bring.

    Parameters
    ----------
    advice : Advice
        The advice.
    """
    candidate = advice.candidate
    how = how_in_words(candidate.algorithm, candidate.keep)
    count = len(advice.names)
    if candidate.kind == "alone":
        first = f"Each of the {count} clients should train alone."
    elif candidate.kind == "together":
        first = f"All {count} clients should train together, by {how}."
    elif candidate.kind == "own weights":
        first = f"Each of the {count} clients should weigh the others' data in its own way ({how})."
    else:
        groups = sum(len(members) > 1 for members in candidate.coalitions)
        single = sum(len(members) == 1 for members in candidate.coalitions)
        alone = f", {single} of them alone" if single else ""
        first = f"{count} clients should train in {groups} coalition{'s' * (groups != 1)}{alone}, by {how}."
    if advice.verdict == "no clear difference":
        first = f"No clear difference between training alone and together. {first.replace('should', 'may', 1)}"
    lines = [first]
    if candidate.kind != "alone":
        lines.append(f"Expected on average, against training alone: {mean_gain_in_words(advice)}.")
    lines += others_in_words(advice)
    lines += separates_in_words(advice)
    return "\n".join(lines)


def mean_gain_in_words(advice: Advice) -> str:
    """Return what clients will gain on average: in accuracy and loss, or in the units of a numeric target and in R2."""
    score = gain_in_words(advice.candidate.accuracy_gain, "accuracy", advice.task.points)
    error = advice.mean_error_gain
    if error is not None:
        return f"{error_in_words(error, advice.target['loss'])}; {score.split(',')[0]}"
    return f"{score}; {gain_in_words(advice.candidate.gain, 'loss').split(',')[0]}"


def client_gain_in_words(advice: Advice, client: str) -> str:
    """Return what one client will gain; arguments as in `explain_client`."""
    error = advice.error_gains.get(client)
    if error is not None:
        return error_in_words(error, advice.target["loss"])
    return gain_in_words(advice.gains[client].accuracy, "accuracy", advice.task.points)


def explain_client(advice: Advice, client: str) -> str:
    """Return what one client should do, what it will gain, and what else was considered.

    Parameters
    ----------
    advice : Advice
        The advice.
    client : str
        The client's name.
    """
    candidate, gain = advice.candidate, advice.gains[client]
    how = how_in_words(candidate.algorithm, candidate.keep)
    row = advice.weights[advice.names.index(client)]
    if candidate.kind == "own weights":
        order = sorted(zip(row.tolist(), advice.names, strict=True), reverse=True)
        named = ", ".join(f"{name} {100 * weight:.0f} %" for weight, name in order[:NAMED] if weight >= 0.01)
        with_whom = f"its model learns from {named}"
    else:
        members = next(group for group in candidate.coalitions if client in group)
        others = [name for name in members if name != client]
        with_whom = f"with {_named(others)}, by {how}" if others else "alone"
    if not [weight for weight, name in zip(row, advice.names, strict=True) if weight > 0 and name != client]:
        text = f"{client}: {with_whom}."
    else:
        text = f"{client}: {with_whom}: {client_gain_in_words(advice, client)}."
    if not gain.measured:
        text += " It has too few training rows to be measured: the gain is what the others' measurements suggest."
    lines = [text]
    for other in advice.candidates:
        measured = other.held_out.get(client)
        if measured is not None:
            mark = " (advised)" if other is candidate else " (ended early: clearly behind)" if other.dropped else ""
            lines.append(
                f"  {other.label}: held-out loss {measured[0]:.3f}, "
                f"{advice.task.score} {100 * (measured[1] or 0):.1f} %{mark}"
            )
    return "\n".join(lines)


def others_in_words(advice: Advice) -> list[str]:
    """Return a sentence about the next best candidate of another kind, if there is one.

    Parameters
    ----------
    advice : Advice
        The advice.
    """
    chosen = advice.candidate
    others = [each for each in advice.candidates if each.kind != chosen.kind and not each.dropped]
    if not others:
        return []
    best = max(others, key=lambda each: each.gain.mean)
    behind = chosen.gain.mean - best.gain.mean
    return [f"Next best: {best.label}, {abs(behind):.3f} {'higher' if behind >= 0 else 'lower'} in expected loss."]


def separates_in_words(advice: Advice) -> list[str]:
    """Return a sentence about the columns in which clients differ, and whether that changes the rule.

    Parameters
    ----------
    advice : Advice
        The advice.
    """
    differ = [row["column"] for row in advice.separates]
    if not differ:
        return []
    matter = [row["column"] for row in advice.separates if row["matters"]]
    text = f"Clients differ most in {_listed(differ)}"
    if not matter:
        return [f"{text}; {'none of these changes' if len(differ) > 1 else 'it does not change'} the rule."]
    return [f"{text}; the rule changes with {_listed(matter)}."]


def _listed(names: Sequence[str]) -> str:
    """Return names with commas and an "and"."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def _named(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    if len(names) <= NAMED:
        return _listed(names)
    return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"


def _signed(value: float, digits: int) -> str:
    """Return a number with its sign; a value that rounds to 0 has a plus."""
    text = f"{value:+.{digits}f}"
    return text.replace("-", "+") if float(text) == 0 else text.replace("-", "−")
