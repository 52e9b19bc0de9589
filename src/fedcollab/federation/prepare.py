"""Federated preprocessing: what the columns and labels are, and how they become numbers, agreed without pooling rows.

Two rounds of aggregates. Round 1, `describe`: each client reports its sample count, its columns with their kinds, the
count and sum of each numeric column, the set of categories of each other column, and the count of each label; of a
numeric target the sum instead, as of one more column. Round 2, `spread`: given the federation's means, each reports the
sum of squared deviations. The server makes one `Schema`, which every client then applies to its own rows (`prepare`).

This is the server side, which sees replies alone; the actions are in `prepare_client`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from fedcollab.data.schema import Column, Schema
from fedcollab.errors import FedcollabWarning, InputError, number
from fedcollab.federation.plausible import contradiction
from fedcollab.federation.prepare_client import Floats, describe, prepare, spread
from fedcollab.federation.present import Moments, Present, deviation, total
from fedcollab.federation.task import check_task, decide
from fedcollab.wire.message import Message
from fedcollab.wire.runtime import Runtime

SCALES = ("auto", "features", "channels", "none")


def agree(
    present: Present, scale: str, missing_indicators: bool, test_share: float, seed: int, task: str = "auto"
) -> tuple[dict[str, Message], Schema]:
    """Have all clients agree on a schema, in two rounds of counts and sums.

    Parameters
    ----------
    present : Present
        The clients that are asked.
    scale : str
        How arrays are scaled: "features" (each its own mean and spread), "channels" (one a channel of N x C x H x W,
        one for all values otherwise), "none", or "auto": features for rows, channels for images.
    missing_indicators : bool
        Whether tables get one more feature a column, which says whether the value is missing.
    test_share, seed : float, int
        The hold-out of clients without a test split.
    task : str
        What models predict: "classification", "regression" or "auto" (see `federation.task`).

    Returns
    -------
    described : dict
        The description that each client gave of its data.
    schema : Schema
        What they agreed on.

    Raises
    ------
    InputError
        If a setting is unknown, or the clients' data do not fit together.
    """
    if scale not in SCALES:
        raise InputError(f"`scale` (={scale!r}) must be one of: {', '.join(SCALES)}")
    check_task(task)
    number("test_share", test_share, above=0, at_most=0.9)
    common: Message = {"test_share": test_share, "seed": seed}
    described = present.ask(describe, {"scale": "none", **common})
    if decide(task, described) == "regression":
        common["task"] = "regression"
        if not all(reply.get("numeric") for reply in described.values()):
            described = present.ask(describe, {"scale": "none", **common})
    table, shape = _common_shape(described)
    if table:
        scale = "features"
    elif scale == "auto":
        scale = "features" if len(shape) == 1 else "channels"
    extras: dict[str, Any] = {"missing_indicators": missing_indicators, **common}
    if table:
        return _table_schema(present, described, common, extras)
    if scale == "none" and "task" not in common:
        return described, Schema(_classes(described), tuple(shape), **extras)
    if scale == "features" or len(shape) == 3:
        described = present.ask(describe, {"scale": scale, **common})

    def moments(described: Mapping[str, Message]) -> Moments:
        sums, samples = total(described, "sum"), _samples(described)
        columns = len(sums) - len(_of_target(described))
        count = np.full(len(sums), samples * int(np.prod(shape)) / columns)
        count[columns:] = samples
        return sums / count, count

    described, mean, squares = present.variance(described, moments, spread, {"scale": scale, **common})
    features, extras["target"] = _apart(described, mean, deviation(squares, mean))
    extras |= {} if scale == "none" else features
    return described, Schema(_classes(described), tuple(shape), **extras)


_handed_out: WeakKeyDictionary[Runtime, dict[str, str]] = WeakKeyDictionary()


def hand_out(
    runtime: Runtime, names: Iterable[str], schema: Schema, described: Mapping[str, Message] | None = None
) -> Mapping[str, str]:
    """Have clients apply a schema, those of them that do not apply it already.

    Parameters
    ----------
    runtime : Runtime
        Carries the messages.
    names : iterable of str
        The clients.
    schema : Schema
        What they agreed on.
    described : mapping, optional
        How they described themselves: one that says something else now counts as absent.

    Returns
    -------
    mapping
        Who did not answer, and why.
    """
    known, text = _handed_out.setdefault(runtime, {}), schema.to_json()
    asked = [name for name in sorted(names) if known.get(name) != text]
    if not asked:
        return {}
    replies = runtime.call(prepare, {name: {"schema": text} for name in asked}, partial=True)
    strange = {
        name: f"it contradicts itself: {wrong}"
        for name, reply in replies.items()
        if described is not None and name in described and (wrong := contradiction(described[name], reply))
    }
    known |= {name: text for name in replies if name not in strange}
    return {**runtime.absent, **strange}


def _samples(described: Mapping[str, Message]) -> int:
    """Return the number of all clients' training samples."""
    return sum(int(reply["quantity"]) for reply in described.values())


def _of_target(described: Mapping[str, Message]) -> list[int]:
    """Return of how many values the sum of a numeric target is, as a list of one; an empty list for classes."""
    return [_samples(described)] if all(reply.get("numeric") for reply in described.values()) else []


def _apart(
    described: Mapping[str, Message], mean: Floats, std: tuple[float, ...]
) -> tuple[dict[str, tuple[float, ...]], tuple[float, float]]:
    """Return the means and deviations of features, and those of the target, which come last if there is one."""
    last = len(mean) - len(_of_target(described))
    target = (float(mean[last]), std[last]) if last < len(mean) else (0.0, 1.0)
    return {"mean": tuple(mean[:last].tolist()), "std": std[:last]}, target


def _table_schema(
    present: Present, described: Mapping[str, Message], common: Message, extras: dict[str, Any]
) -> tuple[dict[str, Message], Schema]:
    """Agree on the columns of tables: their kinds, categories, means and deviations."""
    names = next(iter(described.values()))["shape"]
    for position, name in enumerate(names):
        by_kind = {reply["kinds"][position]: client for client, reply in reversed(list(described.items()))}
        if {"numeric", "categorical"} <= by_kind.keys():
            raise InputError(
                f"column `{name}` is numeric at client `{by_kind['numeric']}` "
                f"and text at client `{by_kind['categorical']}`"
            )

    def moments(described: Mapping[str, Message]) -> Moments:
        values = np.append(total(described, "present"), _of_target(described))  # 0 where a client has no value
        return total(described, "sum") / np.maximum(values, 1), values

    described, mean, squares = present.variance(described, moments, spread, {"scale": "features", **common})
    features, extras["target"] = _apart(described, mean, deviation(squares, mean))
    columns = []
    for position, name in enumerate(names):
        if any(reply["kinds"][position] == "categorical" for reply in described.values()):
            union = set().union(*(reply["categories"][position] for reply in described.values()))
            columns.append(Column(name, categories=tuple(sorted(union))))
        else:
            columns.append(Column(name, features["mean"][position], features["std"][position]))
    width = sum((len(c.categories) if c.categories is not None else 1) + extras["missing_indicators"] for c in columns)
    return described, Schema(_classes(described), (width,), tuple(columns), **extras)


def _common_shape(described: Mapping[str, Message]) -> tuple[bool, list[Any]]:
    """Return whether all clients have tables, and their columns or shape; raise where they differ."""
    (first, reference), *others = described.items()
    for name, reply in others:
        if reply["table"] != reference["table"]:
            raise InputError(f"client `{name}` and client `{first}` differ: one has a table, the other an array")
        if reply["shape"] == reference["shape"]:
            continue
        if not reply["table"]:
            raise InputError(
                f"client `{name}` has features of shape {tuple(reply['shape'])}; "
                f"client `{first}` has {tuple(reference['shape'])}"
            )
        what = differing_columns(reference["shape"], reply["shape"])
        raise InputError(f"client `{name}` has other columns than client `{first}`: {what or 'in another order'}")
    return bool(reference["table"]), list(reference["shape"])


def differing_columns(expected: list[str], found: list[str]) -> str:
    """Return which columns are lacking and which are too many; an empty text if they are the same.

    Parameters
    ----------
    expected, found : list of str
        Column names.

    Examples
    --------
    >>> differing_columns(["age", "sex"], ["age", "weight"])
    'lacks sex; has also weight'
    """
    lacking = [column for column in expected if column not in found]
    extra = [column for column in found if column not in expected]
    return "; ".join([f"lacks {', '.join(lacking)}"] * bool(lacking) + [f"has also {', '.join(extra)}"] * bool(extra))


def _classes(described: Mapping[str, Message]) -> tuple[int | str, ...]:
    """Return all classes, sorted; none for a numeric target."""
    if _of_target(described):
        return ()
    labels = {name: reply["labels"] for name, reply in described.items()}
    by_type = {type(values[0]).__name__: name for name, values in reversed(list(labels.items()))}
    if len(by_type) > 1:
        raise InputError(
            f"labels are numbers at client `{by_type['int']}` and text at client `{by_type['str']}`; expected one kind"
        )
    for name, reply in described.items():
        if len(reply["label_counts"]) == 1:
            only = next(iter(reply["label_counts"]))
            warnings.warn(f"client `{name}` has one class only: {only}", FedcollabWarning, stacklevel=4)
    classes = tuple(sorted({label for values in labels.values() for label in values}))
    if len(classes) < 2:
        raise InputError(
            f"the clients have one class in all ({classes[0]!r}); at least 2 are needed to train a classifier"
        )
    return classes
