"""What a client's answer to the data check can be: a reply that contradicts itself makes its client absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcollab.inspection.column import impossible_column
from fedcollab.parsing import MOST_COLUMNS


def impossible_profile(message: Mapping[str, Any], reply: Mapping[str, Any]) -> str | None:
    """Return what no data can be described by in a reply to `inspect` (`InspectReply`), or None.

    Parameters
    ----------
    message : mapping
        What the client was sent.
    reply : mapping
        What came back, of the declared types.
    """
    rows, columns = reply["quantity"], reply["columns"]
    if not reply["shape"] or any(isinstance(side, str) != reply["table"] for side in reply["shape"]):
        return "`shape` must hold the columns of a table or the sides of an array"
    if len(reply["shape"]) > MOST_COLUMNS:
        return f"`shape` has {len(reply['shape'])} columns; a table has at most {MOST_COLUMNS}"
    if [column["name"] for column in columns] != (reply["shape"] if reply["table"] else []):
        return "`columns` are not those of `shape`"
    if sum(reply["labels"].values()) > rows or len(reply["labels"]) + reply["rare_labels"] > rows:
        return f"`labels` counts more than the {rows} rows"
    if reply["groups"] > rows or reply["duplicates"] >= rows + reply["test_quantity"]:
        return f"`groups` or `duplicates` are more than the {rows} rows allow"
    if reply.get("far_targets", 0) > rows:
        return f"`far_targets` are more than the {rows} rows"
    targets = [reply["target"]] if "target" in reply else []
    for place, column in enumerate([*columns, *targets], start=1):
        wrong = impossible_column(column, rows)
        if wrong is not None:
            return f"column {place} {wrong}"
    return None
