"""Findings about single columns: identifiers, dates, free text, columns that differ, constants, categories, leakage."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Any

from fedcollab.data.spelling import normal_form, spellings
from fedcollab.inspection.column import CATEGORIES
from fedcollab.inspection.labels import Replies
from fedcollab.inspection.result import Finding

#: fewer rows than this cannot tell an identifier from a measurement
ROWS = 20
#: the share of different values from which whole numbers and texts are nearly unique
UNIQUE_NUMBERS, UNIQUE_TEXTS = 0.98, 0.9
#: the share of the errors of guessing the commonest label that one column alone may avoid
LEAKAGE = 0.9
#: how much more often a column may be missing at one client than at another
MISSING = 0.5

_IDENTIFIER = re.compile(
    r"(?i:^(index|row|rownames?|record|patient|subject|person|unnamed: 0)$|(^|[^a-z])(id|ids|uid|uuid|guid|mrn|ssn)$)"
    r"|[a-z](Id|ID)$"
)

Columns = Mapping[str, Mapping[str, Mapping[str, Any]]]  # by column, then by client


def by_column(replies: Replies) -> Columns:
    """Return what the clients said about each column, in the order of the first client that has it."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for name, reply in replies.items():
        for column in reply["columns"]:
            found.setdefault(column["name"], {})[name] = column
    return found


def column_findings(replies: Replies) -> Iterator[Finding]:
    """Yield what is doubtful about single columns.

    Parameters
    ----------
    replies : mapping
        What each client said about its data.
    """
    replies = {name: reply for name, reply in replies.items() if reply["table"]}
    columns = by_column(replies)
    for column, profiles in columns.items():
        yield from _present(column, columns, replies)
        found = list(_kinds(column, profiles)) or list(_identifier(column, profiles))
        found += [] if found else list(_constant(column, profiles))
        yield from found
        if any(each.severity != "info" for each in found):
            continue  # what else may be said about it does not matter any more
        yield from _categories(column, profiles)
        yield from _leakage(column, profiles, replies)
        yield from _missing(column, profiles, replies)


def _present(column: str, columns: Columns, replies: Replies) -> Iterator[Finding]:
    """Find clients that lack a column that most have, and clients that have one that most lack."""
    profiles = columns[column]
    lacking = [name for name in replies if name not in profiles]
    if not lacking:
        return
    remedy = f"--columns common (what all have), or --drop {quote(column)}"
    alike = [other for other in columns if other != column and normal_form(other) == normal_form(column)]
    if alike:
        remedy = f"write {column!r} and {alike[0]!r} alike in the headers; or {remedy}"
    if len(lacking) <= len(profiles):
        for name in lacking:
            seen = f"lacks the column {column!r}, which {len(profiles)} of {len(replies)} clients have"
            yield Finding(name, column, "column-missing", "error", f"{seen}: the tables do not fit together.", remedy)
    else:
        for name in profiles:
            seen = f"has a column {column!r}, which {len(lacking)} of {len(replies)} clients lack"
            yield Finding(name, column, "column-extra", "error", f"{seen}: the tables do not fit together.", remedy)


def _kinds(column: str, profiles: Mapping[str, Any]) -> Iterator[Finding]:
    """Find columns that are numbers at some clients and text at others, and those that hold dates."""
    kinds = {name: part["kind"] for name, part in profiles.items() if part["kind"] != "empty"}
    if any(part["dates"] for part in profiles.values()):
        effect = "clients observed at different times are told apart by it, whatever their data are like"
        remedy = f"--drop {quote(column)}, or turn it into numbers"
        yield Finding(None, column, "date", "error", f"it holds dates: {effect}.", remedy)
    elif len(set(kinds.values())) > 1:
        usual = Counter(kinds.values()).most_common(1)[0][0]
        for name, kind in kinds.items():
            if kind != usual:
                words = {"numeric": "numbers", "text": "text", "date": "dates"}
                seen = f"holds {words[kind]} here and {words[usual]} at other clients"
                text = "decimal commas, signs such as < and words such as 'unknown' make text; missing: leave it empty"
                remedy = f"--drop {quote(column)}, or write the values alike ({text})"
                yield Finding(name, column, "column-kind", "error", f"it {seen}.", remedy)


def _identifier(column: str, profiles: Mapping[str, Any]) -> Iterator[Finding]:
    """Find columns that number or name rows instead of measuring something."""
    large = {name: part for name, part in profiles.items() if part["present"] >= ROWS and part["distinct"]}
    if not large:
        return
    kind = next(iter(large.values()))["kind"]
    unique = sum(part["distinct"] for part in large.values()) / sum(part["present"] for part in large.values())
    most = max(part["distinct"] for part in large.values())
    named = bool(_IDENTIFIER.search(column.strip())) and unique >= 0.1 and most > ROWS
    ids = f"--drop {quote(column)} (or --id {quote(column)} where rows that share it belong together)"
    effect = "it tells clients apart without saying anything about them, and distances go to 1"
    if kind == "text":
        if any(part["long_text"] for part in large.values()) and unique >= 0.5:
            seen = f"free text ({100 * unique:.0f} % of the values are different)"
            yield Finding(
                None, column, "free-text", "error", f"{seen}: as categories, {effect}.", f"--drop {quote(column)}"
            )
        elif unique >= UNIQUE_TEXTS or most > CATEGORIES or named:
            seen = f"texts of which {100 * unique:.0f} % are different, as in an identifier"
            yield Finding(None, column, "identifier", "error", f"{seen}: {effect}.", ids)
        return
    if not all(part["whole"] for part in large.values()):
        if sum(part["monotone"] for part in large.values()) > len(large) / 2:
            seen = "it rises or falls from row to row at most clients, as a time does"
            yield Finding(None, column, "identifier", "warning", f"{seen}: {effect}.", f"--drop {quote(column)}")
        return
    reasons = ["its name is that of an identifier"] * named
    if unique >= UNIQUE_NUMBERS:
        reasons += ["they are consecutive"] * _dense(large.values()) + ["no two clients share a range"] * _apart(large)
    monotone = sum(part["monotone"] for part in large.values()) > len(large) / 2
    seen = f"whole numbers of which {100 * unique:.0f} % are different"
    if reasons:
        reasons += ["they rise or fall from row to row"] * monotone
        yield Finding(None, column, "identifier", "error", f"{seen}, and {' and '.join(reasons[:2])}: {effect}.", ids)
    elif unique >= UNIQUE_NUMBERS:
        severity = "warning" if monotone else "info"
        more = ", rising or falling from row to row" if monotone else ""
        doubt = "a measurement, or an identifier that tells clients apart"
        yield Finding(
            None,
            column,
            "identifier",
            severity,
            f"{seen}{more}: {doubt}.",
            f"{ids}; --trust {quote(column)}: a measurement",
        )


def _dense(profiles: Any) -> bool:
    """Return whether the different whole numbers lie next to each other, at most clients: 1, 2, 3, ... in any order."""
    dense = [bool(part["std"] <= 2 * math.sqrt((part["distinct"] ** 2 - 1) / 12)) for part in profiles]
    return sum(dense) > len(dense) / 2


def _apart(profiles: Mapping[str, Any]) -> bool:
    """Return whether the ranges of most pairs of clients do not overlap (of uniform numbers: mean +- 1.73 std)."""
    pairs = list(itertools.combinations(profiles.values(), 2))
    apart = [abs(a["mean"] - b["mean"]) > 1.7 * (a["std"] + b["std"]) for a, b in pairs]
    return bool(pairs) and sum(apart) > len(pairs) / 2


def _constant(column: str, profiles: Mapping[str, Any]) -> Iterator[Finding]:
    """Find columns that have one value: everywhere, one at each client, or at some clients."""
    values = {
        name: next(iter(part["categories"]), part["mean"])
        for name, part in profiles.items()
        if part["distinct"] == 1 and part["present"] >= 2
    }
    if len(values) == len(profiles) > 1 and None not in values.values():
        if len(set(values.values())) == 1:
            seen = "it has the same value everywhere: it tells nothing"
            yield Finding(None, column, "constant", "info", f"{seen}.", f"--drop {quote(column)}")
        else:
            seen = f"it has one value at each client, and {len(set(values.values()))} in all, as the name of a site has"
            effect = "it tells clients apart and says nothing about their rows"
            yield Finding(None, column, "names-client", "error", f"{seen}: {effect}.", f"--drop {quote(column)}")
        return
    for name in values:
        effect = "a model of this client alone cannot learn what it does"
        yield Finding(name, column, "constant", "info", f"it has one value here: {effect}.", "")


def _categories(column: str, profiles: Mapping[str, Any]) -> Iterator[Finding]:
    """Find categories that differ in spelling alone, and clients whose categories nobody else has."""
    texts = {name: part["categories"] for name, part in profiles.items() if part["kind"] == "text"}
    total = Counter[str]()
    for counts in texts.values():
        total.update(counts)
    found = spellings(total)
    for usual, *others in found.values():
        for name, counts in texts.items():
            written = [value for value in others if value in counts]
            if written:
                seen = f"the category {usual!r} is written {' and '.join(map(repr, written))} here"
                effect = "they count as different, so that clients that agree seem to differ"
                remedy = f"write them alike in the file, or --drop {quote(column)}"
                yield Finding(name, column, "category-spelling", "warning", f"{seen}: {effect}.", remedy)
    if found or len(texts) < 2:
        return
    clients = Counter(value for counts in texts.values() for value in counts)
    for name, counts in texts.items():
        strange = sum(count for value, count in counts.items() if clients[value] == 1)
        if strange >= 0.9 * profiles[name]["present"] > 0 and set(clients) - set(counts):
            seen = f"no other client has its categories ({', '.join(map(repr, sorted(counts)[:3]))})"
            effect = "other codes for the same things tell clients apart"
            remedy = f"write them alike in the file, or --drop {quote(column)}"
            yield Finding(name, column, "other-categories", "warning", f"{seen}: {effect}.", remedy)


def _leakage(column: str, profiles: Mapping[str, Any], replies: Replies) -> Iterator[Finding]:
    """Find columns that alone predict the label, over all clients or at one."""
    skills = {name: part["skill"] for name, part in profiles.items() if part["skill"] is not None}
    weights = {name: _errors(replies[name]) for name in skills}
    effect = "if it was written down after the label was known, every result is too good"
    remedy = f"--drop {quote(column)} (--trust {quote(column)}: it is known before)"
    if not skills:
        return
    pooled = sum(skills[name] * weights[name] for name in skills) / max(1, sum(weights.values()))
    if pooled >= LEAKAGE:
        seen = f"alone it avoids {100 * pooled:.0f} % of the errors that guessing the commonest label makes"
        yield Finding(None, column, "leakage", "warning", f"{seen}: {effect}.", remedy)
        return
    for name, skill in skills.items():
        if skill >= 0.95 and weights[name] >= ROWS and pooled < 0.7:
            seen = f"alone it avoids {100 * skill:.0f} % of the errors here, and far fewer at other clients"
            yield Finding(name, column, "leakage", "warning", f"{seen}: {effect}.", remedy)


def _errors(reply: Mapping[str, Any]) -> int:
    """Return how many rows of a client do not have its commonest label."""
    return int(reply["quantity"]) - max(reply["labels"].values(), default=0)


def _missing(column: str, profiles: Mapping[str, Any], replies: Replies) -> Iterator[Finding]:
    """Find columns that are missing far more often at some clients than at others."""
    shares = {name: 1 - part["present"] / replies[name]["quantity"] for name, part in profiles.items()}
    least = min(shares.values())
    usual = _middle(list(shares.values()))
    for name, share in shares.items():
        if share - least >= MISSING and share >= usual:
            seen = f"missing in {100 * share:.0f} % of the rows here, and in {100 * least:.0f} % at another client"
            effect = "missingness alone tells these clients apart"
            remedy = f"--drop {quote(column)} (--trust {quote(column)}: go on with it)"
            yield Finding(name, column, "missingness", "warning", f"{seen}: {effect}.", remedy)


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]
