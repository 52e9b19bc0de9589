"""Federated preprocessing: what the columns and labels are, and how they become numbers, agreed without pooling rows.

Two rounds of aggregates. Round 1, `describe`: each client reports its sample count, its columns with their kinds, the
count and sum of each numeric column, the set of categories of each other column, and the count of each label. Round 2,
`spread`: given the federation's means, each reports the sum of squared deviations. The server makes one `Schema`, which
every client then applies to its own rows (`prepare`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict
from weakref import WeakKeyDictionary

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from fedcollab.data.client import feature_shape, is_table
from fedcollab.data.rare import alike_columns, squares_about
from fedcollab.data.schema import Column, Schema
from fedcollab.errors import FedcollabWarning, InputError, number
from fedcollab.federation.plausible import contradiction, impossible
from fedcollab.federation.present import Moments, Present, deviation, total
from fedcollab.silo.schemas import digest_of, limit_schema
from fedcollab.silo.splits import limit_split
from fedcollab.wire.action import Refused, Release, Step, action, free
from fedcollab.wire.fields import Counts, Labels, Positive, Quantity, Sides, Text, Whole
from fedcollab.wire.limits import Limits
from fedcollab.wire.message import Message
from fedcollab.wire.runtime import Runtime
from fedcollab.wire.silo import Silo

CATEGORIES_AT_MOST = 100
KEPT_SCHEMAS = 1000  # digests of schemas that a silo remembers
SCALES = ("auto", "features", "channels", "none")

Floats = NDArray[np.float64]
Kind = Literal["numeric", "categorical", "empty"]
Share = Annotated[float, Meta(ge=0, le=1)]


class DescribeMessage(TypedDict):
    """The message of `describe`: how arrays are scaled, and which test split is held out where a client has none."""

    scale: str
    test_share: Share
    seed: Whole


class DescribeReply(TypedDict):
    """The reply of `describe`: a client's description of its data.

    `kinds`, `categories` and `present` are those of a table, with one entry a column. `min_coalition` is how many
    clients the silo asks a coalition to have at least, where that is more than one.
    """

    quantity: Quantity
    test_quantity: Quantity
    labels: Labels
    label_counts: Counts
    table: bool
    shape: list[Text | Positive]
    sum: Annotated[Floats, Sides("_")]
    kinds: NotRequired[Annotated[list[Kind], Sides("C")]]
    categories: NotRequired[Annotated[list[list[Text]], Sides("C")]]
    present: NotRequired[Annotated[NDArray[np.int64], Sides("C")]]
    min_coalition: NotRequired[Positive]


class SpreadMessage(TypedDict):
    """The message of `spread`: the federation's means, and the split as in `DescribeMessage`."""

    scale: str
    mean: Annotated[Floats, Sides("S")]
    test_share: Share
    seed: Whole


class SpreadReply(TypedDict):
    """The reply of `spread`: the sum of squared deviations from each mean."""

    squares: Annotated[Floats, Sides("S", low=0)]


class PrepareMessage(TypedDict):
    """The message of `prepare`: the schema that was agreed on, as JSON."""

    schema: str


class PrepareReply(TypedDict):
    """The reply of `prepare`: how many samples there are for training and for testing."""

    quantity: Quantity
    test_quantity: Quantity


def _adds_up(message: DescribeMessage, reply: DescribeReply) -> str | None:
    """Return what contradicts itself in a client's description of its data, or None."""
    if sum(reply["label_counts"].values()) != reply["quantity"]:
        return "`label_counts` do not add up to `quantity`"
    if not set(reply["label_counts"]) <= {str(label) for label in reply["labels"]}:
        return "`label_counts` has labels that are not in `labels`"
    if len({type(label) for label in reply["labels"]}) > 1:
        return "`labels` are numbers and text"
    shape, scale = reply["shape"], message["scale"]
    if not shape or any(isinstance(side, str) != reply["table"] for side in shape):
        return "`shape` must hold the columns of a table or the sides of an array"
    if reply["table"] != all(key in reply for key in ("kinds", "categories", "present")):
        return "`kinds`, `categories` and `present` belong to a table"
    if reply["table"]:
        wanted = len(shape)
        if len(reply["present"]) != wanted:
            return f"`kinds`, `categories` and `present` must have {wanted} entries, one a column"
    elif scale == "features":
        wanted = int(np.prod([int(side) for side in shape]))
    else:
        wanted = int(shape[0]) if scale == "channels" and len(shape) == 3 else 1
    if len(reply["sum"]) != wanted:
        return f"`sum` has {len(reply['sum'])} entries; expected {wanted}"
    return impossible(reply)


def _limit_message(message: DescribeMessage | SpreadMessage, silo: Silo, limits: Limits) -> None:
    limit_split(message["test_share"], message["seed"], silo, limits)


def _limit_schema(message: PrepareMessage, silo: Silo, limits: Limits) -> None:
    try:
        schema = Schema.from_json(message["schema"])
        share, seed = float(schema.test_share), int(schema.seed)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InputError) as error:
        raise Refused(f"`schema` cannot be read: {type(error).__name__}") from None
    limit_split(share, seed, silo, limits)
    limit_schema(schema, silo, limits)


def _new_schema(message: PrepareMessage, silo: Silo) -> Mapping[str, int]:
    """Return the cost of a schema: one, unless the silo has taken it over before."""
    return {} if digest_of(message["schema"]) in silo.state.get("schemas", {}).get("known", []) else {"schemas": 1}


# The client side: only aggregates leave.


@action(
    "describe",
    purpose="said what data there are: numbers of samples and labels, columns, categories, sums",
    release=Release.SUMMARY,
    step=Step.SCHEMA,
    limit=_limit_message,
    cost=free,
    consistent=_adds_up,
)
def describe(message: DescribeMessage, silo: Silo) -> DescribeReply:
    """Round 1: return sample count, shape or columns, counts and sums, category sets, label counts."""
    data = silo.with_test(message["test_share"], message["seed"])
    labels, counts = np.unique(data.y, return_counts=True)
    seen = np.unique(np.concatenate([data.y, np.asarray(data.y_test)]))
    reply: DescribeReply = {
        "quantity": data.quantity,
        "test_quantity": len(np.asarray(data.y_test)),
        "labels": seen.tolist(),
        "label_counts": {str(label): int(count) for label, count in zip(labels.tolist(), counts, strict=True)},
        "table": is_table(data.x),
        "shape": [str(column) for column in data.x.columns] if is_table(data.x) else list(feature_shape(data.x)),
        "sum": np.zeros(0),
    }
    if silo.limits.fewest_partners > 1:
        reply["min_coalition"] = silo.limits.fewest_partners
    if not is_table(data.x):
        reply["sum"] = _summed(data.x, message["scale"], silo).sum(axis=0)
        return reply
    columns = [_summed_column(data.x[name], name, silo) for name in data.x.columns]
    reply["sum"] = np.array([values.sum() if kind == "numeric" else 0.0 for kind, values in columns], dtype=np.float64)
    reply["kinds"] = [kind for kind, _ in columns]
    reply["categories"] = [sorted(set(values.tolist())) if kind == "categorical" else [] for kind, values in columns]
    reply["present"] = np.array([len(values) for _, values in columns])
    return reply


@action(
    "spread",
    purpose="said how far each column is spread: sums of squares",
    release=Release.SUMMARY,
    step=Step.SCHEMA,
    limit=_limit_message,
    cost=free,
)
def spread(message: SpreadMessage, silo: Silo) -> SpreadReply:
    """Round 2: return the sums of squared deviations from the federation's means."""
    data = silo.with_test(message["test_share"], message["seed"])
    mean = message["mean"]
    if not is_table(data.x):
        return {"squares": squares_about(_summed(data.x, message["scale"], silo), mean)}
    squares = []
    for name, centre in zip(data.x.columns, mean, strict=True):
        kind, values = _summed_column(data.x[name], name, silo)
        squares.append(float(squares_about(values, centre)) if kind == "numeric" else 0.0)
    return {"squares": np.array(squares, dtype=np.float64)}


@action(
    "prepare",
    purpose="took over the scaling that was agreed on",
    release=Release.SUMMARY,
    step=Step.SCHEMA,
    limit=_limit_schema,
    cost=_new_schema,
)
def prepare(message: PrepareMessage, silo: Silo) -> PrepareReply:
    """Keep the schema; every later action sees the data through it."""
    silo.state["prepare"] = {"schema": message["schema"]}
    known = silo.state.get("schemas", {}).get("known", [])
    own = digest_of(message["schema"])
    if own not in known:
        silo.state["schemas"] = {"known": [*known, own][-KEPT_SCHEMAS:]}
    arrays = silo.arrays
    return {"quantity": len(arrays.y), "test_quantity": len(arrays.y_test)}


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


def _reduced(x: Floats, scale: str) -> Floats:
    """Return values with one column for each mean that is wanted: a feature, a channel, or all of them together."""
    if scale == "features":
        return x.reshape(len(x), -1)
    if scale == "channels" and x.ndim == 4:
        return np.moveaxis(x, 1, -1).reshape(-1, x.shape[1])
    return x.reshape(-1, 1)


def _summed(x: Any, scale: str, silo: Silo) -> Floats:
    """Return the values of an array as they are summed: no feature tells fewer samples than the limit apart."""
    values = _reduced(x.astype(np.float64), scale)
    return alike_columns(values, silo.limits.min_samples) if len(values) == len(x) else values


def _summed_column(values: Any, name: str, silo: Silo) -> tuple[Kind, NDArray[Any]]:
    """Return a column's kind and its present values as they are summed: none that only a few rows have."""
    kind, present = _column(values, name, silo.name)
    return kind, alike_columns(present, silo.limits.min_samples) if kind == "numeric" else present


def _column(values: Any, name: str, client: str) -> tuple[Kind, NDArray[Any]]:
    """Return a column's kind and its present values."""
    present = values.dropna()
    if len(present) == 0:
        return "empty", np.zeros(0)
    if values.dtype.kind in "mM":
        raise InputError(
            f"client `{client}`: column `{name}` holds dates; turn it into numbers or leave it out (--drop)"
        )
    if values.dtype.kind in "biuf":
        return "numeric", present.to_numpy(dtype=np.float64)
    text = present.astype(str).to_numpy(dtype=str)
    distinct = len(np.unique(text))
    if distinct > CATEGORIES_AT_MOST:
        raise InputError(
            f"client `{client}`: column `{name}` has {distinct} different texts (at most {CATEGORIES_AT_MOST}); "
            "if it is an identifier or free text, leave it out (--drop)"
        )
    return "categorical", text


# The server side: sees replies alone.


def agree(
    present: Present, scale: str, missing_indicators: bool, test_share: float, seed: int
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
    number("test_share", test_share, above=0, at_most=0.9)
    common: Message = {"test_share": test_share, "seed": seed}
    described = present.ask(describe, {"scale": "none", **common})
    table, shape = _common_shape(described)
    if table:
        scale = "features"
    elif scale == "auto":
        scale = "features" if len(shape) == 1 else "channels"
    extras: dict[str, Any] = {"missing_indicators": missing_indicators, **common}
    if table:
        return _table_schema(present, described, common, extras)
    if scale == "none":
        return described, Schema(_classes(described), tuple(shape), **extras)
    if scale == "features" or len(shape) == 3:
        described = present.ask(describe, {"scale": scale, **common})

    def moments(described: Mapping[str, Message]) -> Moments:
        sums = total(described, "sum")
        count = sum(reply["quantity"] for reply in described.values()) * int(np.prod(shape)) / len(sums)
        return sums / count, np.array(count)

    described, mean, squares = present.variance(described, moments, spread, {"scale": scale, **common})
    schema = Schema(_classes(described), tuple(shape), None, tuple(mean.tolist()), deviation(squares), **extras)
    return described, schema


def _table_schema(
    present: Present, described: Mapping[str, Message], common: Message, extras: dict[str, Any]
) -> tuple[dict[str, Message], Schema]:
    names = next(iter(described.values()))["shape"]
    for position, name in enumerate(names):
        by_kind = {reply["kinds"][position]: client for client, reply in reversed(list(described.items()))}
        if {"numeric", "categorical"} <= by_kind.keys():
            raise InputError(
                f"column `{name}` is numeric at client `{by_kind['numeric']}` "
                f"and text at client `{by_kind['categorical']}`"
            )

    def moments(described: Mapping[str, Message]) -> Moments:
        values = total(described, "present")  # 0 where a client has no value of a column
        return total(described, "sum") / np.maximum(values, 1), values

    described, mean, squares = present.variance(described, moments, spread, {"scale": "features", **common})
    stds = deviation(squares)
    columns = []
    for position, name in enumerate(names):
        if any(reply["kinds"][position] == "categorical" for reply in described.values()):
            union = set().union(*(reply["categories"][position] for reply in described.values()))
            columns.append(Column(name, categories=tuple(sorted(union))))
        else:
            columns.append(Column(name, float(mean[position]), stds[position]))
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

    Returns
    -------
    str
        A text for an error message.

    Examples
    --------
    >>> differing_columns(["age", "sex"], ["age", "weight"])
    'lacks sex; has also weight'
    """
    lacking = [column for column in expected if column not in found]
    extra = [column for column in found if column not in expected]
    return "; ".join([f"lacks {', '.join(lacking)}"] * bool(lacking) + [f"has also {', '.join(extra)}"] * bool(extra))


def _classes(described: Mapping[str, Message]) -> tuple[int | str, ...]:
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
