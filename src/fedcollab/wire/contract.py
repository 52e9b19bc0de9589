"""What every action is sent and answers with, in one table: who receives a message checks it against this first.

A field is written as `kind`, `kind low..high` or `dtype[sides]`:

    text  flag  whole  number        one plain value; `0..9` after any of these: from 0 to 9
    texts[N]  wholes[N]  numbers[N]  a list of N of them; `lists[N]` N lists of texts
    labels  counts  sides  privacy   class labels; numbers of samples by label; a sample's shape, or column names; the
                                     noise of differential privacy, or none
    f4[P]  f8[K,2]  i8[N]  b[K]  f4  an array: float32, float64, int64 or bool; finite unless `~` follows

A side that is a letter stands for the same number everywhere in a message and its reply, `_` for any number; without
sides, any shape. `key?` may be missing; `*` is what any further key must be. Whatever is not in the table is refused.

The silo checks messages by it (`runtime.guard`), the server replies (`runtime.base`); `purpose` is what the silo's log
says of an action, to its administrator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from fedcollab.errors import InputError
from fedcollab.wire.message import Message

Fields = Mapping[str, str]
Sides = dict[str, int]

DTYPES = {"f4": np.float32, "f8": np.float64, "i8": np.int64, "b": np.bool_}
MOST = 2**63
#: what a client may be asked for at most: more would be an attack on its memory, or a mistake
FOLDS, REPEATS, REPLICATES, CLASSES, EPOCHS = 100, 100, 1_000, 100_000, 1_000


class Broken(ValueError):
    """A message that is not what the table says; its text says where."""


@dataclass(frozen=True)
class Contract:
    """One action: what it is for, its message, its reply, and what no single field can say (None: all is well)."""

    purpose: str
    message: Fields = field(default_factory=dict)
    reply: Fields = field(default_factory=dict)
    also: Callable[[Message, Message], str | None] | None = None


def _adds_up(message: Message, reply: Message) -> str | None:
    """Whether what a client says of itself can be true."""
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
        if any(len(reply[key]) != wanted for key in ("kinds", "categories", "present")):
            return f"`kinds`, `categories` and `present` must have {wanted} entries, one a column"
        if not set(reply["kinds"]) <= {"numeric", "categorical", "empty"}:
            return "`kinds` must be numeric, categorical or empty"
    elif scale == "features":
        wanted = int(np.prod(shape))
    else:
        wanted = shape[0] if scale == "channels" and len(shape) == 3 else 1
    return None if len(reply["sum"]) == wanted else f"`sum` has {len(reply['sum'])} entries; expected {wanted}"


_split: Fields = {"test_share": "number 0..1", "seed": "whole"}
_round: Fields = {"setting": "text", "round": "whole", "since?": "whole", "training?": "text"}
_coalition: Fields = {"coalition?": "texts[_]"}

CONTRACTS: dict[str, Contract] = {
    "describe": Contract(
        "said what data there are: numbers of samples and labels, columns, categories, sums",
        {"scale": "text", **_split},
        {
            "quantity": f"whole 1..{MOST}", "test_quantity": f"whole 1..{MOST}", "labels": "labels",
            "label_counts": "counts", "table": "flag", "shape": "sides", "sum": "f8[_]",
            "kinds?": "texts[C]", "categories?": "lists[C]", "present?": "i8[C]",
        },
        _adds_up,
    ),
    "spread": Contract(
        "said how far each column is spread: sums of squares",
        {"scale": "text", "mean": "f8[S]", **_split},
        {"squares": "f8[S]"},
    ),
    "prepare": Contract(
        "took over the scaling that was agreed on",
        {"schema": "text"},
        {"quantity": f"whole 1..{MOST}", "test_quantity": f"whole 1..{MOST}"},
    ),
    "encode": Contract(
        "said what the encoded data are: sums", {"encoder": "text"}, {"checksum": "text", "sum": "f8[_]"}
    ),
    "encode-spread": Contract(
        "said how far the encoded data are spread: sums of squares",
        {"encoder": "text", "mean": "f8[S]"},
        {"squares": "f8[S]"},
    ),
    "fingerprint": Contract("gave a checksum of the data, to show whether they changed", {}, {"fingerprint": "text"}),
    "train": Contract(
        "trained a model: weights",
        {**_round, **_coalition, "w": "f4[P]", "*": "f4"},
        {"finite": "flag", "w?": "f4[P]", "loss?": "f8[1]", "diverged?": "text", "*": "f4"},
        lambda message, reply: (
            None if ("w" in reply and "loss" in reply) == reply["finite"] else "`w` and `loss` belong to a finite reply"
        ),
    ),
    "evaluate": Contract(
        "tested a model: accuracy and loss; with `keep`, the weights of the personal model",
        {**_round, **_coalition, "w": "f4[P]", "*": "f4", "personal": "flag", "keep": "flag", "stay": "flag"},
        {"measures": "f8[4]~", "personal_measures?": "f8[4]~", "personal?": "f4[P]"},
    ),
    "losses": Contract(
        "tested several models on training data: one loss a model",
        {**_round, "models": "f4[K,P]"},
        {"losses": "f8[K]~"},
    ),
    "cross-norm": Contract(
        "said how long a sample is on average: one number", {"min_samples?": f"whole 1..{MOST}"}, {"norm": "f8[1]"}
    ),
    "cross-open": Contract(
        "took over the plan of a comparison with other clients",
        {
            "head": "text", "classes": f"whole 1..{CLASSES}", "seed": "whole", "folds": f"whole 2..{FOLDS}",
            "replicates": f"whole 0..{REPLICATES}", "sizes": f"wholes[N] 1..{MOST}",
            "repeats": f"wholes[N] 1..{REPEATS}", "targets": "wholes[N] 0..1", "scales": "numbers[N]",
            "min_samples?": f"whole 1..{MOST}", "label_counts?": "text",
        },
    ),
    "cross-step": Contract(
        "trained models that tell clients apart: weights", {"w": "f4[M,R,D]"}, {"w": "f4[M,R,D]"}
    ),
    "cross-validate": Contract(
        "tested models that tell clients apart: accuracies and their spread",
        {"w": "f4[M,R,D]"},
        {
            "accuracy": "f8[N,E] 0..1", "variance": "f8[N,E] 0..1", "fitted": "f8[N,E] 0..1",
            "replicates": "f8[N,E,_]",
        },
    ),
    "few-moments": Contract(
        "gave sums over parts of the data: products of two features each, by label",
        {
            "seed": "whole", "width": f"whole 1..{CLASSES}", "folds": f"whole 2..{FOLDS}",
            "classes": f"whole 1..{CLASSES}", "min_samples": f"whole 1..{MOST}", "privacy?": "privacy",
            "label_counts": "text",
        },
        {"m": "f4[_,_,_]"},
    ),
    "few-validate": Contract(
        "tested models that tell clients apart: accuracies and their spread",
        {
            "w": "f4[N,F,K,D]", "targets": "wholes[N] 0..1",
            "replicates": f"whole 0..{REPLICATES}",
        },
        {"found": "f8[N,_]"},
        lambda message, reply: (
            None if reply["found"].shape[1] in (1, 2 + message["replicates"])
            else f"`found` has shape {reply['found'].shape}; expected {2 + message['replicates']} columns"
        ),
    ),
    "prototype-means": Contract(
        "gave the average sample of each class",
        {"classes": f"whole 1..{CLASSES}", "least": f"whole 2..{MOST}", "min_samples?": f"whole 1..{MOST}"},
        {"means": "f4[K,_]", "known": "b[K]", "spread": "f8[1]"},
    ),
    "published-open": Contract(
        "took over the plan of a comparison with other clients",
        {
            "seed": "whole", "train": f"whole 1..{MOST}", "lr": "number", "batch": f"whole 1..{MOST}",
            "local_steps": f"whole 1..{EPOCHS}", "hidden": f"whole 1..{CLASSES}", "classes": f"whole 0..{CLASSES}",
            "targets": "wholes[_] 0..1", "min_samples?": f"whole 1..{MOST}",
        },
    ),
    "published-step": Contract(
        "trained models that tell clients apart: weights",
        {"w": "f4[M,P]", "pairs": f"wholes[M] 0..{MOST}", "round": "whole"},
        {"w": "f4[M,P]"},
    ),
    "published-validate": Contract(
        "tested models that tell clients apart: accuracies",
        {"w": "f4[M,P]", "pairs": f"wholes[M] 0..{MOST}"},
        {"accuracy": "f8[M] 0..1"},
    ),
}  # fmt: skip


def check_message(action: str, message: Message) -> Sides:
    """What the sides stand for in this message; raises `Broken` where it is not what the table says."""
    sides: Sides = {}
    _check(CONTRACTS[action].message, message, sides)
    return sides


def check_reply(action: str, message: Message, reply: Message) -> None:
    """Raises `Broken` where a reply does not belong to its message; of other actions only finite numbers are asked."""
    if action not in CONTRACTS:
        for key, value in reply.items():
            if isinstance(value, np.ndarray) and not _finite(value):
                raise Broken(f"`{key}` has NaN or infinite values")
        return
    contract = CONTRACTS[action]
    try:
        sides = check_message(action, message)
    except Broken as error:
        raise InputError(f"the server's own message of `{action}` is not in the table: {error}") from None
    _check(contract.reply, reply, sides)
    wrong = contract.also(message, reply) if contract.also is not None else None
    if wrong is not None:
        raise Broken(wrong)


def _check(fields: Fields, content: Message, sides: Sides) -> None:
    known = {key.rstrip("?"): spec for key, spec in fields.items()}
    for key in fields:
        if not key.endswith("?") and key != "*" and key not in content:
            raise Broken(f"`{key}` is missing")
    for key, value in content.items():
        spec = known.get(key, known.get("*") if isinstance(value, np.ndarray) else None)
        if spec is None:
            raise Broken(f"`{key}` is not expected")
        wrong = _wrong(_parse(spec), value, sides)
        if wrong:
            raise Broken(f"`{key}` {wrong}")


@dataclass(frozen=True)
class _Field:
    kind: str
    shape: tuple[str, ...] | None
    low: float
    high: float
    nan: bool


_SPEC = re.compile(r"(?P<kind>\w+)(?:\[(?P<shape>[\w,]*)\])?(?P<nan>~)?(?: (?P<low>-?\d+)\.\.(?P<high>\d+))?")


@cache
def _parse(spec: str) -> _Field:
    """Read one entry of the table.

    >>> _parse("f4[M,2]~")
    _Field(kind='f4', shape=('M', '2'), low=-9223372036854775808, high=9223372036854775808, nan=True)
    """
    found = _SPEC.fullmatch(spec)
    if found is None:
        raise ValueError(f"not a field: {spec!r}")
    shape = None if found["shape"] is None else tuple(found["shape"].split(","))
    low, high = (int(found[side]) if found[side] else end for side, end in (("low", -MOST), ("high", MOST)))
    return _Field(found["kind"], shape, low, high, found["nan"] is not None)


def _wrong(spec: _Field, value: Any, sides: Sides) -> str | None:
    if spec.kind in DTYPES:
        return _wrong_array(spec, value, sides)
    plural = spec.kind in ("texts", "wholes", "numbers", "lists")
    if plural:
        if not isinstance(value, list):
            return f"is {_a(value)}; expected a list"
        length = None if spec.shape is None else _wrong_side(spec.shape[0], len(value), sides)
        if length:
            return f"has {len(value)} entries; expected {length}"
    one = spec.kind.removesuffix("s") if plural else spec.kind
    for item in value if plural else [value]:
        if not _PLAIN[one](item):
            return f"holds {_a(item)}; expected {one}" if plural else f"is {_a(item)}; expected {_WORDS[one]}"
        if one in ("whole", "number") and not spec.low <= item <= spec.high:
            return f"(={item}) must be from {spec.low} to {spec.high}"
    return None


def _wrong_array(spec: _Field, value: Any, sides: Sides) -> str | None:
    if not isinstance(value, np.ndarray):
        return f"is {_a(value)}; expected an array"
    if value.dtype != DTYPES[spec.kind]:
        return f"is an array of {value.dtype}; expected {np.dtype(DTYPES[spec.kind])}"
    if spec.shape is not None and value.ndim != len(spec.shape):
        return f"has shape {value.shape}; expected {len(spec.shape)} side(s)"
    for side, length in zip(spec.shape or (), value.shape, strict=spec.shape is not None):
        wanted = _wrong_side(side, length, sides)
        if wanted:
            return f"has shape {value.shape}; expected {wanted} for {length}"
    if not (spec.nan or _finite(value)):
        return "has NaN or infinite values"
    if spec.high < MOST and value.size and not (value.min() >= spec.low - 1e-6 and value.max() <= spec.high + 1e-6):
        return f"has values outside {spec.low} to {spec.high}"
    return None


def _wrong_side(side: str, length: int, sides: Sides) -> int | None:
    """The length that was expected, where it is not this one."""
    if side == "_":
        return None
    wanted = int(side) if side.isdigit() else sides.setdefault(side, length)
    return None if wanted == length else wanted


def _finite(value: np.ndarray) -> bool:
    return value.dtype.kind != "f" or bool(np.isfinite(value).all())


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < float("inf")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_WORDS = {
    "text": "a text", "flag": "true or false", "whole": "a whole number", "number": "a number",
    "privacy": "noise, epsilon, delta and clip", "labels": "class labels",
    "counts": "numbers of samples by label", "sides": "a shape or columns",
}  # fmt: skip
_PLAIN: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "flag": lambda value: isinstance(value, bool),
    "whole": _is_whole,
    "number": _is_number,
    "list": lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
    "labels": lambda value: (
        isinstance(value, list) and bool(value) and all(isinstance(item, str) or _is_whole(item) for item in value)
    ),
    "counts": lambda value: (
        isinstance(value, dict) and bool(value) and all(_is_whole(item) and item >= 0 for item in value.values())
    ),
    "privacy": lambda value: (
        value is None
        or (
            isinstance(value, dict)
            and set(value) == {"noise", "epsilon", "delta", "clip"}
            and all(_is_number(item) and item > 0 for item in value.values())
        )
    ),
    "sides": lambda value: (
        isinstance(value, list)
        and all(isinstance(item, str) or (_is_whole(item) and 0 < item < MOST) for item in value)
    ),
}


def _a(value: Any) -> str:
    return "an array" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
