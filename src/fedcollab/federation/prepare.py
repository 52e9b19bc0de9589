"""Federated preprocessing: what the columns and labels are, and how they become numbers, agreed without pooling rows.

Two rounds of aggregates. Round 1, `describe`: each client reports its sample count, its columns with their kinds, the
count and sum of each numeric column, the set of categories of each other column, and the count of each label. Round 2,
`spread`: given the federation's means, each reports the sum of squared deviations. The server makes one `Schema`, which
every client then applies to its own rows: numeric columns are centred and scaled (missing becomes the mean, that is 0),
categories become one-hot columns (missing becomes all zeros), labels become class indices.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab import seeds
from fedcollab.data.client import ClientData, Features, feature_shape, is_table
from fedcollab.encoders.encoding import Encoding, with_encoder
from fedcollab.errors import FedcollabWarning, InputError, number
from fedcollab.progress import Progress, silent
from fedcollab.wire.absence import reasons
from fedcollab.wire.message import Message
from fedcollab.wire.runtime import Runtime
from fedcollab.wire.silo import Arrays, Silo

Moments = tuple[NDArray[np.float64], NDArray[np.float64]]  # a mean each, and how many values it is of

CATEGORIES_AT_MOST = 100
SCALES = ("auto", "features", "channels", "none")


@dataclass(frozen=True)
class Column:
    """One column of a table: numeric with mean and standard deviation, or categorical with its categories."""

    name: str
    mean: float = 0.0
    std: float = 1.0
    categories: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Schema:
    """How raw samples become model inputs; the same at every client.

    classes      the label of each class index
    shape        the shape of one prepared sample
    columns      for tables, how each column is encoded; None for arrays
    mean, std    for arrays, one value, or one a feature or channel
    encoding     the frozen encoder whose features stand for samples when distances are estimated; None: the samples
    """

    classes: tuple[int | str, ...]
    shape: tuple[int, ...]
    columns: tuple[Column, ...] | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    missing_indicators: bool = False
    test_share: float = 0.2
    seed: int = 0
    encoding: Encoding | None = None

    @property
    def width(self) -> int:
        """Numbers that stand for one sample when distances are estimated."""
        return int(np.prod(self.shape)) if self.encoding is None else self.encoding.width

    def apply(self, data: ClientData) -> Arrays:
        """A client's samples as arrays; without a test split of its own it holds one out."""
        data = with_test(data, self.test_share, self.seed)
        return Arrays(
            self.features(data.x), self.targets(data.y), self.features(data.x_test), self.targets(data.y_test)
        )

    def features(self, x: Features) -> NDArray[np.float32]:
        """Encode raw features."""
        if self.columns is None:
            if is_table(x):
                raise InputError("`x` is a table; this schema was made for arrays")
            if tuple(x.shape[1:]) != self.shape:
                raise InputError(f"`x` has features of shape {tuple(x.shape[1:])}; expected {self.shape}")
            axis = (-1, 1, 1) if len(self.mean) > 1 and len(self.shape) == 3 else (-1,)
            mean, std = (np.reshape(np.array(part, dtype=np.float32), axis) for part in (self.mean, self.std))
            return np.ascontiguousarray((x.astype(np.float32) - mean) / std)
        missing = [column.name for column in self.columns if column.name not in x.columns]
        if missing:
            raise InputError(f"`x` lacks the column {missing[0]!r}")
        parts = [part for column in self.columns for part in self._encode(column, x[column.name])]
        return np.ascontiguousarray(np.stack(parts, axis=1, dtype=np.float32))

    def targets(self, y: NDArray[Any] | None) -> NDArray[np.int64]:
        """Class indices of raw labels."""
        labels = np.asarray(y)
        index = {label: position for position, label in enumerate(self.classes)}
        try:
            return np.array([index[label] for label in labels.tolist()], dtype=np.int64)
        except KeyError as error:
            raise InputError(f"label {error.args[0]!r} is not among the known classes {list(self.classes)}") from None

    def _encode(self, column: Column, values: Any) -> list[NDArray[np.float64]]:
        absent = values.isna().to_numpy()
        indicator = [absent.astype(float)] if self.missing_indicators else []
        if column.categories is None:
            numbers = np.where(absent, column.mean, values.to_numpy(dtype=float, na_value=np.nan))
            return [(numbers - column.mean) / column.std, *indicator]
        text = values.astype(object).where(values.notna(), "").astype(str).to_numpy(dtype=str)
        return [((text == category) & ~absent).astype(float) for category in column.categories] + indicator

    def to_json(self) -> str:
        """As text, for messages and files."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Schema:
        """What `to_json` wrote."""
        content: dict[str, Any] = json.loads(text)
        columns, encoding = content.pop("columns"), content.pop("encoding", None)
        if columns is not None:
            columns = tuple(
                Column(
                    c["name"],
                    c["mean"],
                    c["std"],
                    None if c["categories"] is None else tuple(c["categories"]),
                )
                for c in columns
            )
        listed: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in content.items()}
        return cls(columns=columns, encoding=None if encoding is None else Encoding.of(encoding), **listed)


# The client side: only aggregates leave.


def describe_client(message: Message, silo: Silo) -> Message:
    """Round 1: sample count, shape or columns, counts and sums, category sets, label counts."""
    data = with_test(silo.data, message["test_share"], message["seed"])
    labels, counts = np.unique(data.y, return_counts=True)
    seen = np.unique(np.concatenate([data.y, np.asarray(data.y_test)]))
    reply: Message = {
        "quantity": data.quantity,
        "test_quantity": len(np.asarray(data.y_test)),
        "labels": seen.tolist(),
        "label_counts": {str(label): int(count) for label, count in zip(labels.tolist(), counts, strict=True)},
        "table": is_table(data.x),
        "shape": [str(column) for column in data.x.columns] if is_table(data.x) else list(feature_shape(data.x)),
    }
    if not is_table(data.x):
        return reply | {"sum": _reduced(data.x.astype(np.float64), message["scale"]).sum(axis=0)}
    kinds, categories, sums, present = [], [], [], []
    for name in data.x.columns:
        kind, values = _column(data.x[name], name, silo.name)
        kinds.append(kind)
        categories.append(sorted(set(values.tolist())) if kind == "categorical" else [])
        sums.append(values.sum() if kind == "numeric" else 0.0)
        present.append(len(values))
    return reply | {
        "kinds": kinds, "categories": categories, "sum": np.array(sums, dtype=np.float64), "present": np.array(present),
    }  # fmt: skip


def spread_client(message: Message, silo: Silo) -> Message:
    """Round 2: sums of squared deviations from the federation's means."""
    data = with_test(silo.data, message["test_share"], message["seed"])
    mean = message["mean"]
    if not is_table(data.x):
        return {"squares": ((_reduced(data.x.astype(np.float64), message["scale"]) - mean) ** 2).sum(axis=0)}
    squares = []
    for name, centre in zip(data.x.columns, mean, strict=True):
        kind, values = _column(data.x[name], name, silo.name)
        squares.append(((values - centre) ** 2).sum() if kind == "numeric" else 0.0)
    return {"squares": np.array(squares, dtype=np.float64)}


def prepare_client(message: Message, silo: Silo) -> Message:
    """Keep the schema; every later action sees the data through it."""
    silo.state["prepare"] = {"schema": message["schema"]}
    arrays = silo.arrays
    return {"quantity": len(arrays.y), "test_quantity": len(arrays.y_test)}


def with_test(data: ClientData, share: float, seed: int) -> ClientData:
    """The client with a test split: its own, or a stratified hold-out drawn from (seed, name)."""
    if data.y_test is not None:
        return data
    chosen = held_out(data, share, seed)
    if not 0 < chosen.sum() < len(data.y) - 1:
        raise InputError(
            f"client `{data.name}` has {len(data.y)} samples, too few to hold out a test split; at least 4 are needed"
        )
    x, x_test = (data.x[mask] for mask in (~chosen, chosen))
    return ClientData(data.name, x, data.y[~chosen], x_test, data.y[chosen])


def held_out(data: ClientData, share: float, seed: int) -> NDArray[np.bool_]:
    """Which samples are the test split of a client that has none of its own."""
    return stratified(data.y, share, seeds.generator(seed, "hold-out", data.name))


def stratified(y: NDArray[Any], share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """A mask of `share` of the samples, with every label's share as near to it as whole samples allow.

    Labels get the floor of their quota; the samples still missing go to the largest remainders, ties at random.
    """
    labels, index, counts = np.unique(y, return_inverse=True, return_counts=True)
    quota = counts * share
    take = np.floor(quota).astype(int)
    order = np.lexsort((rng.random(len(labels)), -(quota - take)))
    take[order[: max(round(len(y) * share), 1) - take.sum()]] += 1
    mask = np.zeros(len(y), dtype=bool)
    for label in range(len(labels)):
        mask[rng.permutation(np.flatnonzero(index == label))[: take[label]]] = True
    return mask


def _reduced(x: NDArray[np.float64], scale: str) -> NDArray[np.float64]:
    """Values with one column a mean is wanted for: a feature, a channel, or all of them together."""
    if scale == "features":
        return x.reshape(len(x), -1)
    if scale == "channels" and x.ndim == 4:
        return np.moveaxis(x, 1, -1).reshape(-1, x.shape[1])
    return x.reshape(-1, 1)


def _column(values: Any, name: str, client: str) -> tuple[str, NDArray[Any]]:
    """A column's kind and its present values."""
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


def federate(
    clients: Iterable[ClientData] | Runtime,
    *,
    runtime: str = "vectorised",
    device: str = "auto",
    scale: str = "auto",
    missing_indicators: bool = False,
    test_share: float = 0.2,
    seed: int = 0,
    encoder: Any = None,
    progress: Progress = silent,
) -> Runtime:
    """A runtime over these clients, prepared; one that exists is passed through, and prepared once.

    encoder    for distances (see `encoders`); a prepared federation keeps the one it has where this is None
    progress   of encoding
    """
    from fedcollab.wire import connect

    federation = connect(clients, runtime, device)
    if federation.schema is None:
        prepare(federation, scale=scale, missing_indicators=missing_indicators, test_share=test_share, seed=seed)
    if encoder is not None:
        agree_on_encoder(federation, encoder, progress)
    return federation


def agree_on_encoder(runtime: Runtime, encoder: Any, progress: Progress = silent) -> None:
    """Have every client of a prepared federation see its samples through this encoder when distances are estimated."""
    assert runtime.schema is not None
    schema = with_encoder(runtime, runtime.schema, encoder, progress)
    if schema != runtime.schema:
        ask_everyone(runtime, "prepare", {"schema": schema.to_json()})
        runtime.schema = schema


def prepare(
    runtime: Runtime,
    *,
    scale: str = "auto",
    missing_indicators: bool = False,
    test_share: float = 0.2,
    seed: int = 0,
) -> Schema:
    """Agree on a schema and have every client apply it.

    scale   how arrays are scaled: "features" (each its own mean and spread), "channels" (one a channel of
            N x C x H x W, one for all values otherwise), "none", or "auto": features for rows, channels for images
    """
    if scale not in SCALES:
        raise InputError(f"`scale` (={scale!r}) must be one of: {', '.join(SCALES)}")
    number("test_share", test_share, above=0, at_most=0.9)
    common = {"test_share": test_share, "seed": seed}
    described = ask_everyone(runtime, "describe", {"scale": "none", **common})
    table, shape = _agree(described)
    if table:
        scale = "features"
    elif scale == "auto":
        scale = "features" if len(shape) == 1 else "channels"
    extras: dict[str, Any] = {
        "missing_indicators": missing_indicators,
        "test_share": test_share,
        "seed": seed,
    }
    if table:
        described, schema = _table_schema(runtime, described, common, extras)
    elif scale == "none":
        schema = Schema(_classes(described), tuple(shape), **extras)
    else:
        if scale == "features" or len(shape) == 3:
            described = ask_everyone(runtime, "describe", {"scale": scale, **common})

        def moments(described: Mapping[str, Message]) -> Moments:
            sums = total(described, "sum")
            count = sum(reply["quantity"] for reply in described.values()) * int(np.prod(shape)) / len(sums)
            return sums / count, np.array(count)

        described, mean, squares = variance(runtime, described, moments, "spread", {"scale": scale, **common})
        schema = Schema(_classes(described), tuple(shape), None, tuple(mean.tolist()), deviation(squares), **extras)
    runtime.described = described
    ask_everyone(runtime, "prepare", {"schema": schema.to_json()})
    runtime.schema = schema
    return schema


def ask_everyone(runtime: Runtime, action: str, message: Message) -> dict[str, Message]:
    """One round of preparing: whoever does not answer is left out of the federation, with a word about it."""
    replies = runtime.call_all(action, message, partial=True)
    if runtime.absent:
        runtime.leave_out(runtime.absent)
        warnings.warn(f"left out: {reasons(runtime.absent)}", FedcollabWarning, stacklevel=3)
    return replies


def variance(
    runtime: Runtime,
    described: Mapping[str, Message],
    moments: Callable[[Mapping[str, Message]], Moments],
    action: str,
    ask: Message,
) -> tuple[dict[str, Message], NDArray[np.float64], NDArray[np.float64]]:
    """Means and variances over those who answer both rounds: with one lost in between, the second is asked again."""
    while True:
        mean, count = moments(described)
        replies = ask_everyone(runtime, action, {**ask, "mean": mean})
        if len(replies) == len(described):
            return dict(described), mean, total(replies, "squares") / count
        described = {name: reply for name, reply in described.items() if name in replies}


def _table_schema(
    runtime: Runtime,
    described: Mapping[str, Message],
    common: Message,
    extras: dict[str, Any],
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
        present = np.maximum(total(described, "present"), 1)
        return total(described, "sum") / present, present

    described, mean, squares = variance(runtime, described, moments, "spread", {"scale": "features", **common})
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


def _agree(described: Mapping[str, Message]) -> tuple[bool, list[Any]]:
    """Whether all clients have tables, and their columns or shape; a clear line where they differ."""
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
        lacking = [column for column in reference["shape"] if column not in reply["shape"]]
        extra = [column for column in reply["shape"] if column not in reference["shape"]]
        what = "; ".join(
            [f"lacks {', '.join(lacking)}"] * bool(lacking) + [f"has also {', '.join(extra)}"] * bool(extra)
        )
        raise InputError(f"client `{name}` has other columns than client `{first}`: {what or 'in another order'}")
    return bool(reference["table"]), list(reference["shape"])


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


def total(replies: Mapping[str, Message], key: str) -> NDArray[np.float64]:
    """Sum in order of name, so that the order in which clients are given does not matter."""
    summed: NDArray[np.float64] = np.sum([replies[name][key] for name in sorted(replies)], axis=0, dtype=np.float64)
    return summed


def deviation(variance: NDArray[np.float64]) -> tuple[float, ...]:
    """Standard deviations; 1 for a constant, which scaling must leave alone."""
    deviation = np.sqrt(variance)
    return tuple(np.where(deviation > 1e-12, deviation, 1.0).tolist())
