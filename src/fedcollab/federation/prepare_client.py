"""The client side of preprocessing: a client describes its data by aggregates, and takes over the schema agreed on.

`describe`  sample counts, columns with their kinds, sums, categories and label counts
`spread`    sums of squared deviations from the federation's means
`prepare`   keeps the schema, through which every later action sees the data
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from fedcollab.data.client import ClientData
from fedcollab.data.rare import squares_about
from fedcollab.data.samples import feature_shape, is_numeric, is_table
from fedcollab.data.schema import Schema
from fedcollab.errors import InputError
from fedcollab.federation.plausible import impossible
from fedcollab.silo.rounding import summable
from fedcollab.silo.schemas import digest_of, limit_schema
from fedcollab.silo.splits import limit_split
from fedcollab.tasks import CLASSIFICATION, REGRESSION
from fedcollab.wire.action import Refused, Release, Step, action, free
from fedcollab.wire.fields import Counts, Labels, Positive, Quantity, Sides, Text, Whole
from fedcollab.wire.limits import Limits
from fedcollab.wire.silo import Silo

CATEGORIES_AT_MOST = 100
KEPT_SCHEMAS = 1000  # digests of schemas that a silo remembers

Floats = NDArray[np.float64]
Kind = Literal["numeric", "categorical", "empty"]
Share = Annotated[float, Meta(ge=0, le=1)]
Task = Literal["classification", "regression"]


class DescribeMessage(TypedDict):
    """The message of `describe`: how arrays are scaled, and which test split is held out where a client has none.

    `task` is what models predict (see `federation.task`), where that was decided already.
    """

    scale: str
    test_share: Share
    seed: Whole
    task: NotRequired[Task]


class DescribeReply(TypedDict):
    """The reply of `describe`: a client's description of its data.

    `kinds`, `categories` and `present` are those of a table, with one entry a column. `min_coalition` is how many
    clients the silo asks a coalition to have at least, where that is more than one. `numeric` says that the labels are
    a numeric target: then they are not listed, and their sum is the last entry of `sum`.
    """

    quantity: Quantity
    test_quantity: Quantity
    labels: Labels
    label_counts: Counts
    numeric: NotRequired[bool]
    table: bool
    shape: list[Text | Positive]
    sum: Annotated[Floats, Sides("_")]
    kinds: NotRequired[Annotated[list[Kind], Sides("C")]]
    categories: NotRequired[Annotated[list[list[Text]], Sides("C")]]
    present: NotRequired[Annotated[NDArray[np.int64], Sides("C")]]
    min_coalition: NotRequired[Positive]


class SpreadMessage(TypedDict):
    """The message of `spread`: the federation's means, the split and the task as in `DescribeMessage`.

    For a regression the last of the means is that of the target.
    """

    scale: str
    mean: Annotated[Floats, Sides("S")]
    test_share: Share
    seed: Whole
    task: NotRequired[Task]


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
    numeric = bool(reply.get("numeric"))
    if numeric != (not reply["labels"]) or numeric != (not reply["label_counts"]):
        return "`labels` and `label_counts` belong to classes, and to nothing else"
    own = REGRESSION if numeric else CLASSIFICATION
    if message.get("task", own) != own:
        return "`numeric` contradicts the task"
    if not numeric and sum(reply["label_counts"].values()) != reply["quantity"]:
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
    if len(reply["sum"]) != wanted + numeric:
        return f"`sum` has {len(reply['sum'])} entries; expected {wanted + numeric}"
    return impossible(reply)


def _limit_message(message: DescribeMessage | SpreadMessage, silo: Silo, limits: Limits) -> None:
    """Refuse a test split that this silo's limits do not allow."""
    limit_split(message["test_share"], message["seed"], silo, limits)


def _limit_schema(message: PrepareMessage, silo: Silo, limits: Limits) -> None:
    """Refuse a schema that cannot be read, or that this silo's limits or data do not allow."""
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
    numeric = _is_numeric(silo.data, message.get("task"))
    labels, counts = np.unique(data.y[: 0 if numeric else None], return_counts=True)
    seen = np.unique(np.concatenate([data.y, np.asarray(data.y_test)]))
    reply: DescribeReply = {
        "quantity": data.quantity,
        "test_quantity": len(np.asarray(data.y_test)),
        "labels": [] if numeric else seen.tolist(),
        "label_counts": {str(label): int(count) for label, count in zip(labels.tolist(), counts, strict=True)},
        "table": is_table(data.x),
        "shape": [str(column) for column in data.x.columns] if is_table(data.x) else list(feature_shape(data.x)),
        "sum": np.zeros(0),
    }
    if silo.limits.fewest_partners > 1:
        reply["min_coalition"] = silo.limits.fewest_partners
    target = [_summed_target(data.y, silo).sum()] if numeric else []
    if numeric:
        reply["numeric"] = True
    if not is_table(data.x):
        reply["sum"] = np.append(_summed(data.x, message["scale"], silo).sum(axis=0), target)
        return reply
    columns = [_summed_column(data.x[name], name, silo) for name in data.x.columns]
    sums = [values.sum() if kind == "numeric" else 0.0 for kind, values in columns]
    reply["sum"] = np.array([*sums, *target], dtype=np.float64)
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
    mean, target = message["mean"], list[float]()
    if message.get("task") == "regression":
        target, mean = [float(squares_about(_summed_target(data.y, silo), mean[-1]))], mean[:-1]
    if not is_table(data.x):
        return {"squares": np.append(squares_about(_summed(data.x, message["scale"], silo), mean), target)}
    squares = []
    for name, centre in zip(data.x.columns, mean, strict=True):
        kind, values = _summed_column(data.x[name], name, silo)
        squares.append(float(squares_about(values, centre)) if kind == "numeric" else 0.0)
    return {"squares": np.array([*squares, *target], dtype=np.float64)}


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


def _reduced(x: Floats, scale: str) -> Floats:
    """Return values with one column for each mean that is wanted: a feature, a channel, or all of them together."""
    if scale == "features":
        return x.reshape(len(x), -1)
    if scale == "channels" and x.ndim == 4:
        return np.moveaxis(x, 1, -1).reshape(-1, x.shape[1])
    return x.reshape(-1, 1)


def _summed(x: Any, scale: str, silo: Silo) -> Floats:
    """Return the values of an array as they are summed; those of all features together are as they are."""
    values = _reduced(x.astype(np.float64), scale)
    return summable(values, silo) if len(values) == len(x) else values


def _is_numeric(data: ClientData, task: str | None) -> bool:
    """Return whether a client's labels are a numeric target: as the task says, or as they are if it says nothing."""
    numbers = is_numeric(data.y) or (data.y_test is not None and is_numeric(data.y_test))
    if task == "classification" and numbers:
        raise Refused("the labels here are numbers with fractions, and no classes")
    if task == "regression" and data.y.dtype.kind not in "if":
        raise Refused("the labels here are text, and no numeric target")
    return numbers if task is None else task == "regression"


def _summed_target(y: Any, silo: Silo) -> Floats:
    """Return the values of a numeric target as they are summed."""
    return summable(np.asarray(y, dtype=np.float64), silo)


def _summed_column(values: Any, name: str, silo: Silo) -> tuple[Kind, NDArray[Any]]:
    """Return a column's kind and its present values as they are summed."""
    kind, present = _column(values, name, silo.name)
    return kind, summable(present, silo) if kind == "numeric" else present


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
