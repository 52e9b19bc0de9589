"""Findings about labels: spellings, kinds, labels that only some clients know, one class, imbalance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fedcollab.data.spelling import normal_form, spellings
from fedcollab.inspection.differences import LABEL
from fedcollab.inspection.result import Finding
from fedcollab.wire.message import Message

#: the share of the commonest label from which accuracy says little
IMBALANCE = 0.95

Replies = Mapping[str, Message]

_MERGE = "--merge-labels takes them as one (--trust label: they are different classes)"
_MAP = "--label-map FILE says which label is which"


def label_findings(replies: Replies) -> Iterator[Finding]:
    """Yield what is doubtful about the clients' labels.

    Parameters
    ----------
    replies : mapping
        What each client said about its data.
    """
    yield from _kinds(replies)
    yield from _spellings(replies)
    yield from _separate(replies)
    yield from _shares(replies)


def _kinds(replies: Replies) -> Iterator[Finding]:
    """Find clients whose labels are text where those of most clients are numbers, or the reverse."""
    kinds = {name: str(reply["label_kind"]) for name, reply in replies.items()}
    if len(set(kinds.values())) < 2:
        return
    usual = max(("text", "numbers"), key=list(kinds.values()).count)
    for name, kind in kinds.items():
        if kind != usual:
            seen = f"the labels are {kind} ({_some(replies[name]['labels'])}), those of other clients {usual}"
            yield Finding(name, LABEL, "label-kind", "error", f"{seen}: they cannot be compared.", _MAP)


def _spellings(replies: Replies) -> Iterator[Finding]:
    """Find labels that differ by case, blanks or the way numbers are written."""
    total: dict[str, int] = {}
    for reply in replies.values():
        for label, count in reply["labels"].items():
            total[label] = total.get(label, 0) + count
    usual = {other: texts[0] for texts in spellings(total).values() for other in texts[1:]}
    for name, reply in replies.items():
        found = [label for label in reply["labels"] if label in usual]
        if found:
            verb = "is" if len(found) == 1 else "are"
            seen = f"{_listed(usual[label] for label in found)} of other clients {verb} written {_listed(found)} here"
            if {usual[label] for label in found} & set(reply["labels"]):
                seen = f"{_listed(usual[label] for label in found)} is also written {_listed(found)}"
            effect = "each spelling counts as a class of its own, so that clients that agree seem to differ"
            yield Finding(name, LABEL, "label-spelling", "error", f"{seen}: {effect}.", _MERGE)
    for name, reply in replies.items():
        if reply["rare_spellings"]:
            seen = "a label that few rows have differs from another one by case, blanks or number format alone"
            yield Finding(name, LABEL, "label-spelling", "error", f"{seen}: it counts as a class of its own.", _MERGE)


def _separate(replies: Replies) -> Iterator[Finding]:
    """Find clients that share no label with most others, however indirectly."""
    groups: list[tuple[set[str], set[str]]] = []  # labels, clients
    for name, reply in replies.items():
        labels, members = {normal_form(label) for label in reply["labels"]}, {name}
        if not labels:
            continue
        for group in [group for group in groups if group[0] & labels]:
            groups.remove(group)
            labels, members = labels | group[0], members | group[1]
        groups.append((labels, members))
    if len({reply["label_kind"] for reply in replies.values()}) > 1:
        return
    for _, members in sorted(groups, key=lambda group: -len(group[1]))[1:]:
        for name in sorted(members):
            seen = f"no other client has its labels ({_some(replies[name]['labels'])})"
            effect = "whether they mean the same as others under another name cannot be told"
            severity = "warning" if replies[name]["label_kind"] == "text" else "info"  # numbers are no names
            yield Finding(name, LABEL, "other-labels", severity, f"{seen}: {effect}.", _MAP)


def _shares(replies: Replies) -> Iterator[Finding]:
    """Find one class only, and classes that almost all rows have."""
    total: dict[str, int] = {}
    for name, reply in replies.items():
        for label, count in reply["labels"].items():
            total[label] = total.get(label, 0) + count
        if len(reply["labels"]) + reply["rare_labels"] == 1:
            seen = f"all rows have one class{_named(reply['labels'])}"
            effect = "a model trained alone only repeats it, and is always right on test rows of that class"
            yield Finding(
                name, LABEL, "one-class", "warning", f"{seen}: {effect}.", "Leave the client out, or look why."
            )
            continue
        share = max(reply["labels"].values(), default=0) / reply["quantity"]
        if share >= IMBALANCE:
            seen = f"{100 * share:.0f} % of the rows have one class{_named(reply['labels'])}"
            effect = "accuracy says little there, since always guessing it is nearly always right"
            yield Finding(
                name, LABEL, "imbalance", "warning", f"{seen}: {effect}.", "Judge it by loss or balanced accuracy."
            )
    rare = any(reply["rare_labels"] for reply in replies.values())
    if len(total) == 1 and not rare:
        seen = f"all clients together have one class ({next(iter(total))!r})"
        yield Finding(
            None, LABEL, "one-class", "error", f"{seen}: there is nothing to learn.", "Name another label column."
        )


def _named(labels: Mapping[str, int]) -> str:
    return f" ({max(labels, key=lambda label: labels[label])!r})" if labels else ""


def _some(labels: Mapping[str, int]) -> str:
    listed = sorted(labels)
    return ", ".join(map(repr, listed[:3])) + (", ..." if len(listed) > 3 else "")


def _listed(labels: Iterable[str]) -> str:
    return " and ".join(map(repr, dict.fromkeys(labels)))
