"""The answer in words, the same on the terminal and on the page."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedcollab.metrics import lower
from fedcollab.uncertainty import LEVEL, Estimate

if TYPE_CHECKING:
    from fedcollab.coalitions import Collaboration


#: times its rows up to which a client is told what a gain is worth: a learning curve is measured on half of the rows
MOST_TIMES = 10


def answer_sentence(collaboration: Collaboration, names: Sequence[str]) -> str:
    """Say in a sentence who should train with whom, and how sure that is.

    Parameters
    ----------
    collaboration : Collaboration
        The answer.
    names : sequence of str
        All clients.
    """
    return f"{headline(collaboration.coalitions, names)}; {sureness(collaboration)}."


def headline(groups: Sequence[Sequence[str]], names: Sequence[str]) -> str:
    """Say who should train with whom, as the beginning of a sentence.

    "Everyone together" and "everyone alone" have words of their own.
    """
    count = len(groups)
    alone = sum(len(members) == 1 for members in groups)
    if len(names) == 1:
        text = "There is one client: it trains alone"
    elif count == 1:
        text = f"{'Both' if len(names) == 2 else f'All {len(names)}'} clients should train together"
    elif alone == len(names):
        text = f"Each of the {len(names)} clients should train alone"
    else:
        grouped = count - alone
        text = f"{len(names) - alone} of {len(names)} clients" if alone else f"{len(names)} clients"
        text += f" should train in {grouped} coalition{'s' if grouped > 1 else ''}"
        text += f", {alone} should train alone" if alone else ""
    return text


def figure(value: float) -> str:
    """Return a number with three significant digits, never as a power of ten.

    Examples
    --------
    >>> figure(0.12345), figure(12345.6), figure(2.0), figure(0.0000752)
    ('0.123', '12,300', '2', '0.0000752')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    rounded = round(value, 2 - math.floor(math.log10(abs(value))))
    if abs(rounded) >= 1000:
        return f"{rounded:,.0f}"
    return np.format_float_positional(rounded, precision=3, fractional=False, trim="-")


def amount(share: float) -> str:
    """Return a share or a difference of shares in percent or points, with one digit.

    Examples
    --------
    >>> amount(0.914), amount(-0.02)
    ('91.4', '−2.0')
    """
    return f"{100 * share:.1f}".replace("-", "−")


def signed(gain: float) -> str:
    """Return a gain in points with its sign.

    Examples
    --------
    >>> signed(0.05), signed(-0.012), signed(0.0)
    ('+5.0', '−1.2', '+0.0')
    """
    return f"{100 * gain + 0.0:+.1f}".replace("-", "−")


def interval(gain: Estimate, *, flipped: bool = False) -> str:
    """Return the interval of a gain in points, in words.

    Parameters
    ----------
    gain : Estimate
        The gain.
    flipped : bool
        Write it as a loss, without signs.

    Examples
    --------
    >>> interval(Estimate(0.05, 0.01, 0.03, 0.07))
    '90 % interval +3.0 to +7.0'
    """
    if math.isnan(gain.low):
        return "how sure that is, is not known"
    ends = (amount(-gain.high), amount(-gain.low)) if flipped else (signed(gain.low), signed(gain.high))
    return f"{100 * LEVEL:.0f} % interval {ends[0]} to {ends[1]}"


def measure(value: float | None, factor: float, unit: str, digits: int, missing: str = "") -> str:
    """Return a measured figure as text.

    Parameters
    ----------
    value : float or None
        The figure.
    factor : float
        What it is multiplied by, for example 100 for percent.
    unit : str
        What follows it.
    digits : int
        How many digits are written after the point.
    missing : str
        The text where it is not known (None or NaN).

    Examples
    --------
    >>> measure(0.914, 100, " %", 0), measure(None, 1, "", 3, "–")
    ('91 %', '–')
    """
    return missing if value is None or math.isnan(value) else f"{factor * value:.{digits}f}{unit}"


def plus_minus(found: Estimate) -> str:
    """Return half the width of a symmetric interval in points, or nothing where it is not known.

    Examples
    --------
    >>> plus_minus(Estimate(0.05, 0.01, 0.03, 0.07))
    ' ± 2.0'
    """
    return "" if math.isnan(found.low) else f" ± {amount((found.high - found.low) / 2)}"


def error_words(gain: Estimate) -> str:
    """Return by how much an error is lower, in a target's units, with the interval.

    Parameters
    ----------
    gain : Estimate
        By how much it is lower.

    Examples
    --------
    >>> error_words(Estimate(0.5, 0.1, -0.3, 1.3))
    '0.5 lower (90 % interval 0.3 higher to 1.3 lower)'
    """
    if math.isnan(gain.low):
        return lower(gain.mean)
    return f"{lower(gain.mean)} ({100 * LEVEL:.0f} % interval {lower(gain.low)} to {lower(gain.high)})"


def equivalent_words(factor: float, low: float, high: float, rows: float, loss: str = "log loss") -> str:
    """Return how many times their rows clients would need alone for the same loss, in words.

    Parameters
    ----------
    factor, low, high : float
        How many times, and its interval; `high` may be infinity.
    rows : float
        How many training rows clients have on average.
    loss : str
        What the loss is called.

    Examples
    --------
    >>> equivalent_words(1.8, 1.4, 3.1, 220)
    'in log loss as if each client trained alone with about 1.8 times its rows (90 % ... 176 more for a client of 220).'
    >>> equivalent_words(0.001, 0.0, 0.4, 220)
    'in log loss as if each client trained alone with less than 1/... of its rows (90 % ... to say more).'
    """
    ends = f"{times(low)} or more" if math.isinf(high) else f"{times(low)} to {times(high)}"
    change = f"{figure(round(abs(factor - 1) * rows))} {'more' if factor > 1 else 'fewer'} for a client of {rows:,.0f}"
    about = f"{'' if factor > 1 else 'only '}about {times(factor)} times its rows"
    if factor > MOST_TIMES or factor * MOST_TIMES < 1:
        change = "too far from what was measured to say more"
        about = f"more than {MOST_TIMES} times its rows" if factor > 1 else f"less than 1/{MOST_TIMES} of its rows"
    return f"in {loss} as if each client trained alone with {about} ({100 * LEVEL:.0f} % interval {ends}; {change})."


def times(factor: float) -> str:
    """Return a factor with as many digits as tell it from 1 and from 0.

    Examples
    --------
    >>> times(1.83), times(1.04), times(0.06), times(23.4)
    ('1.8', '1.04', '0.06', '23')
    """
    return f"{factor:.{2 if factor < 0.1 or 0.9 < factor < 1.1 else 1 if factor < 10 else 0}f}"


def sureness(collaboration: Collaboration) -> str:
    """Say whether the answer is proven optimal, or how far it may be from the best."""
    if collaboration.optimal:
        return f"proven optimal for C = {collaboration.C:.3g}"
    return f"within {100 * collaboration.gap:.1f} % of the best possible for C = {collaboration.C:.3g}"


def coalition_line(members: Sequence[str], quantities: Mapping[str, int]) -> str:
    """Return a coalition's members and size as one line.

    Parameters
    ----------
    members : sequence of str
        The clients of the coalition.
    quantities : mapping of int
        Each client's training samples.

    Examples
    --------
    >>> coalition_line(["north", "south"], {"north": 1200, "south": 300})
    'north, south  (2 clients, 1,500 samples)'
    """
    samples = sum(quantities[name] for name in members)
    many = "client" if len(members) == 1 else "clients"
    return f"{range_of_names(members)}  ({len(members)} {many}, {samples:,} samples)"


def range_of_names(names: Sequence[str], at_most: int = 8) -> str:
    """Return names as text; runs of numbered ones are shortened, and long lists are cut.

    Parameters
    ----------
    names : sequence of str
        The names.
    at_most : int, default 8
        How many names or runs of names are written.

    Examples
    --------
    >>> range_of_names(["client-00", "client-01", "client-02", "client-07"])
    'client-00 … client-02, client-07'
    >>> range_of_names([f"site {letter}" for letter in "abcdefghijk"])
    'site a, site b, site c, site d, site e, site f, site g, and 4 more'
    """
    runs: list[list[str]] = []
    for name in names:
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    texts = [run[0] if len(run) == 1 else f"{run[0]} … {run[-1]}" for run in _unbind(runs)]
    if len(texts) > at_most:
        shown = sum(len(run) for run in _unbind(runs)[: at_most - 1])
        texts = [*texts[: at_most - 1], f"and {len(names) - shown} more"]
    return ", ".join(texts)


def _unbind(runs: list[list[str]]) -> list[list[str]]:
    """Split runs of two names, which read better as two names."""
    return [part for run in runs for part in ([[name] for name in run] if len(run) == 2 else [run])]


def _follows(first: str, second: str) -> bool:
    """Return whether two names differ in their last number only, by one."""
    one, two = (re.fullmatch(r"(.*?)(\d+)", name) for name in (first, second))
    return bool(one and two and one[1] == two[1] and int(two[2]) == int(one[2]) + 1)
