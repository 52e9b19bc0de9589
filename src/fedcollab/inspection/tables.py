"""Findings about whole tables and scales: small clients, repeated rows, the same table twice, other units."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Any

from fedcollab.inspection.columns import ROWS, by_column
from fedcollab.inspection.labels import Replies
from fedcollab.inspection.result import Finding
from fedcollab.wire.limits import Limits

#: training rows below which a silo with the default limits would send nothing at all
TINY = Limits().min_samples
#: test rows below which one row is more than five points of accuracy
TINY_TEST = 20
#: repeated rows: the least share, and how many times more than chance makes
REPEATED, TIMES = 0.02, 10.0
#: other units: the least factor, the least gap of mean logarithms in deviations, and the fewest different values
FACTOR, APART, VALUES = 1.7, 2.5, 6


def table_findings(replies: Replies) -> Iterator[Finding]:
    """Yield what is doubtful about whole tables.

    Parameters
    ----------
    replies : mapping
        What each client said about its data.
    """
    yield from _shapes(replies)
    for name, reply in replies.items():
        yield from _sizes(name, reply)
        yield from _repeated(name, reply)
    yield from _twice(replies)
    for column, profiles in by_column(replies).items():
        yield from unit_findings(column, profiles)


def _shapes(replies: Replies) -> Iterator[Finding]:
    """Find clients whose samples have another form than those of most clients."""
    arrays = {name: tuple(reply["shape"]) for name, reply in replies.items() if not reply["table"]}
    if not arrays:
        yield from _orders(replies)
        return
    shapes = list(arrays.values())
    usual = max(shapes, key=shapes.count)
    for name, reply in replies.items():
        if reply["table"]:
            yield Finding(name, None, "shape", "error", "it has a table, other clients have arrays.", "Bring one form.")
        elif arrays[name] != usual:
            seen = f"its samples have shape {arrays[name]}, those of other clients {usual}"
            yield Finding(name, None, "shape", "error", f"{seen}.", "Bring one shape.")


def _orders(replies: Replies) -> Iterator[Finding]:
    """Find tables with the same columns as the first one in another order."""
    first = next(iter(replies.values()))["shape"]
    for name, reply in replies.items():
        if reply["shape"] != first and sorted(reply["shape"]) == sorted(first):
            seen = "it has the same columns as other clients in another order"
            remedy = "Bring one order (files of one folder get it; a silo's config has `columns`)."
            yield Finding(name, None, "column-order", "error", f"{seen}.", remedy)


def _sizes(name: str, reply: Mapping[str, Any]) -> Iterator[Finding]:
    """Find clients with too few rows, groups or test rows."""
    rows, test = reply["quantity"], reply["test_quantity"]
    if rows < TINY:
        seen = f"{rows} rows to train on"
        effect = "too few for a distance or a model to mean anything"
        yield Finding(
            name, None, "tiny-client", "warning", f"{seen}: {effect}.", "Leave it out, or join it with a like one."
        )
    groups = reply["groups"]
    if 0 < groups < TINY:
        seen = f"the rows to train on belong to {groups} group{'' if groups == 1 else 's'}"
        effect = "none can be held out" if groups == 1 else "too few for a distance or a model to mean anything"
        severity = "error" if groups == 1 else "warning"
        yield Finding(name, None, "few-groups", severity, f"{seen}: {effect}.", "Leave it out, or go without --id.")
    if test < TINY_TEST:
        step = (
            "too few to say how sure a measure is"
            if "target" in reply
            else f"one row is {100 / max(1, test):.0f} points of accuracy"
        )
        step = step if test else "nothing can be measured there"
        remedy = "Bring a test split (NAME.test.csv), or a larger --test-share."
        yield Finding(name, None, "tiny-test", "info", f"{test} rows to test on: {step}.", remedy)


def _repeated(name: str, reply: Mapping[str, Any]) -> Iterator[Finding]:
    """Find rows that are there several times, more often than chance makes them so."""
    rows = reply["quantity"] + reply["test_quantity"]
    again, chance = reply["duplicates"], reply["expected_duplicates"]
    effect = "the same row in training and test flatters every model"
    remedy = "Remove them in the file; --id COLUMN keeps rows of one person on one side."
    if reply["repeats"] > 1 and rows >= ROWS:
        seen = f"every row is there {reply['repeats']} times, as if a file had been appended to itself"
        yield Finding(name, None, "duplicate-rows", "warning", f"{seen}: {effect}.", remedy)
    elif again >= max(3, REPEATED * rows) and again > TIMES * chance:
        seen = f"{again} of {rows} rows repeat an earlier one ({chance:.2g} would by chance)"
        yield Finding(name, None, "duplicate-rows", "warning", f"{seen}: {effect}.", remedy)


def _twice(replies: Replies) -> Iterator[Finding]:
    """Find tables that two clients have alike, row by row."""
    first: dict[str, str] = {}
    for name, reply in replies.items():
        if not reply["checksum"]:
            continue
        other = first.setdefault(reply["checksum"], name)
        if other != name:
            seen = f"its table is that of client {other}, row by row"
            effect = "they seem perfect partners, and each is tested on rows that the other trains on"
            yield Finding(
                name, None, "same-table", "warning", f"{seen}: {effect}.", f"Leave one of {other} and {name} out."
            )


def unit_findings(column: str, profiles: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield the clients that seem to measure a column in another unit.

    Another unit multiplies every value: the mean of log |x| moves by log(factor), and its deviation stays. Clients are
    parted at the largest gap of these means. The parts have other units if the gap is a factor of at least 1.7 and 2.5
    times the largest deviation, and their deviations agree within a factor of 2. So a factor of 2.2 (kilograms, pounds)
    shows in a column that varies by 35 % or less, a factor of 10 where it varies by less than a factor of 2.5.

    Parameters
    ----------
    column : str
        The column.
    profiles : mapping
        What each client said about it.
    """
    known = {
        name: part
        for name, part in profiles.items()
        if part["kind"] == "numeric" and part["log_mean"] is not None and part["distinct"] >= VALUES
    }
    if len(known) < 2:
        return
    parts = _two_parts(known, "log_mean")
    below, above = (known[parts[0][-1]]["log_mean"], known[parts[1][0]]["log_mean"])
    widest = max(float(part["log_std"]) for part in known.values())
    low, high = (_middle(part, known, "log_std") for part in parts)
    few = min(parts, key=len)
    if above - below >= max(math.log(FACTOR), APART * widest) and max(low, high) <= 2 * min(low, high):
        factor = math.exp(_middle(parts[1], known, "log_mean") - _middle(parts[0], known, "log_mean"))
        size = "smaller" if few is parts[0] else "larger"
        seen = f"its values are {factor:.3g} times {size} than at other clients, with the same relative spread"
        yield from (_other_unit(name, column, seen) for name in few)


def _other_unit(name: str, column: str, seen: str) -> Finding:
    effect = "another unit makes like clients differ"
    remedy = (
        f"Convert the column in the file, or --drop {quote(column)} (--trust {quote(column)}: the values are right)"
    )
    return Finding(name, column, "units", "warning", f"{seen}: {effect}.", remedy)


def _two_parts(profiles: Mapping[str, Mapping[str, Any]], key: str) -> tuple[list[str], list[str]]:
    """Part clients, in order of one of their figures, at the largest gap of it."""
    order = sorted(profiles, key=lambda name: (profiles[name][key], name))
    figures = [float(profiles[name][key]) for name in order]
    gaps = [high - low for low, high in itertools.pairwise(figures)]
    cut = max(range(len(gaps)), key=lambda place: gaps[place]) + 1
    return order[:cut], order[cut:]


def _middle(names: Sequence[str], profiles: Mapping[str, Mapping[str, Any]], key: str) -> float:
    figures = sorted(float(profiles[name][key]) for name in names)
    return figures[len(figures) // 2]
