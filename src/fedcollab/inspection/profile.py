"""The client side of the data check: one action, whose reply holds counts, moments and checksums over all rows.

Statistics are of the training rows of the split that the run will use, so that the check adds no new split to those
that a silo has answered for (`silo.splits`). Checksums are keyed by the server for one check: they show that two tables
are equal, and cannot be compared with those of another day. A silo that requires differential privacy leaves out how
well a column predicts the label, the one statistic here that is neither a count nor a sum.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from fedcollab.data.client import ClientData
from fedcollab.data.samples import feature_shape, is_numeric, is_table
from fedcollab.data.spelling import spellings
from fedcollab.data.split import with_test
from fedcollab.errors import InputError
from fedcollab.inspection.column import Count, Profile, profile, rounded
from fedcollab.inspection.plausible import impossible_profile
from fedcollab.inspection.target import far_values, in_parts, profile_of
from fedcollab.parsing import Finite
from fedcollab.silo.splits import limit_split
from fedcollab.wire.action import Release, Step, action, free
from fedcollab.wire.fields import Positive, Text, Whole
from fedcollab.wire.limits import Limits
from fedcollab.wire.silo import Silo

if TYPE_CHECKING:
    import pandas as pd

#: how much of what the columns say is taken to be independent when equal rows are expected by chance
INDEPENDENT = 0.75
#: arrays of more numbers a row than this are not expected to repeat by chance
MANY = 100
#: so many tables must be possible, as a power of 2, that a checksum of one is sent: else a server tries them out
MANY_TABLES = 128


class InspectMessage(TypedDict):
    """The message of `inspect`: which test split is held out where a client has none, and the key of checksums.

    `task` is what models will predict, where that was decided already.
    """

    test_share: Annotated[float, Meta(ge=0, le=1)]
    seed: Whole
    key: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    task: NotRequired[Literal["classification", "regression"]]


class InspectReply(Profile):
    """The reply of `inspect`.

    `labels` counts the rows of every label that enough rows have; `rare_labels` is how many labels fewer rows have, and
    `rare_spellings` whether one of them is another spelling of another label. `duplicates` counts the rows that repeat
    an earlier one, `expected_duplicates` those that chance would make, and every row is there a multiple of `repeats`
    times. `checksum` is that of the whole table, empty where it could be tried out. `groups` is how many groups the
    rows to train on belong to, 0 without groups. Of a numeric target no label is counted: `target` is its profile, as
    of a column, and `far_targets` how many values are far from most.
    """

    groups: Count
    table: bool
    shape: list[Text | Positive]
    label_kind: Literal["numbers", "text"]
    rare_labels: Count
    rare_spellings: bool
    duplicates: Count
    expected_duplicates: Finite
    repeats: Positive
    checksum: Text
    far_targets: NotRequired[Count]


def _limit_message(message: InspectMessage, silo: Silo, limits: Limits) -> None:
    limit_split(message["test_share"], message["seed"], silo, limits)


@action(
    "inspect",
    purpose="said what may be wrong with the data: counts, means and deviations, categories, a keyed checksum",
    release=Release.SUMMARY,
    step=Step.CHECK,
    limit=_limit_message,
    cost=free,
    consistent=impossible_profile,
)
def look(message: InspectMessage, silo: Silo) -> InspectReply:
    """Return counts and moments of the training rows, and a keyed checksum of the whole table."""
    data, test_quantity = _training_rows(silo, message["test_share"], message["seed"])
    limit = silo.limits.min_samples
    numeric = is_numeric(silo.data.y) or (message.get("task") == "regression" and data.y.dtype.kind in "if")
    known = in_parts(data.y) if numeric else data.y
    labels, y, counts = np.unique(known, return_inverse=True, return_counts=True)
    if numeric:
        labels, counts = labels[:0], counts[:0]
    by_label = {str(label): int(count) for label, count in zip(labels.tolist(), counts, strict=True)}
    rare = {label for label, count in by_label.items() if count < limit}
    doubtful = any(rare.intersection(texts) for texts in spellings(by_label).values())
    rows = _row_hashes(silo.data, message["key"])
    times = np.unique(rows, return_counts=True)[1]
    enough = len(rows) >= max(limit, 2)
    checksum = enough and (limit <= 1 or _possible_tables(silo.data) >= MANY_TABLES)
    reply: InspectReply = {
        "quantity": data.quantity,
        "test_quantity": test_quantity,
        "groups": 0 if data.groups is None else len(np.unique(data.groups)),
        "table": is_table(data.x),
        "shape": [str(side) for side in data.x.columns] if is_table(data.x) else list(feature_shape(data.x)),
        "label_kind": "text" if data.y.dtype.kind == "U" else "numbers",
        "labels": {label: count for label, count in by_label.items() if label not in rare},
        "rare_labels": len(rare),
        "rare_spellings": doubtful,
        "duplicates": len(rows) - len(times) if enough else 0,
        "expected_duplicates": rounded(_chance(silo.data)) if enough else 0.0,
        "repeats": int(np.gcd.reduce(times)) if enough else 1,
        "checksum": _checksum(rows, message["key"]) if checksum else "",
        "columns": [],
    }
    if numeric:
        reply["target"], reply["far_targets"] = profile_of(data.y, silo), far_values(data.y, limit)
    if is_table(data.x):
        private = silo.limits.require_privacy is not None
        reply["columns"] = [profile(str(name), data.x[name], y, silo, not private) for name in data.x.columns]
    return reply


def _training_rows(silo: Silo, share: float, seed: int) -> tuple[ClientData, int]:
    """Return the client with the rows that it will train on, and how many it will be tested on."""
    try:
        split = with_test(silo.data, share, seed, silo.lot)
    except InputError:  # too few rows to hold any out: what is there is all that can be looked at
        return silo.data, 0
    return split, len(np.asarray(split.y_test))


def _row_hashes(data: ClientData, key: str) -> NDArray[np.uint64]:
    """Return a keyed checksum of every row, label included, of training and test split together.

    The order of the columns does not count, nor whether whole numbers are stored as integers or as floats.
    """
    parts = [(data.x, data.y)]
    if data.x_test is not None and data.y_test is not None:
        parts.append((data.x_test, data.y_test))
    return np.concatenate([_hash_rows(x, y, key) for x, y in parts])


def _hash_rows(x: Any, y: NDArray[Any], key: str) -> NDArray[np.uint64]:
    """Return a checksum of each row with its label, keyed so that only checks with the same key can be compared."""
    if not is_table(x):
        salt = bytes.fromhex(key)
        hashed = [
            hashlib.blake2b(row.astype(np.float64).tobytes() + str(label).encode(), digest_size=8, key=salt).digest()
            for row, label in zip(x, y.tolist(), strict=True)
        ]
        return np.frombuffer(b"".join(hashed), dtype=np.uint64)
    import pandas as pd

    frame = pd.DataFrame({name: _comparable(x[name]) for name in sorted(x.columns)})
    labels = pd.Series([str(label) for label in y.tolist()], dtype=object)
    own = pd.util.hash_pandas_object(labels, index=False, hash_key=key[:16], categorize=False).to_numpy()
    rest = pd.util.hash_pandas_object(frame, index=False, hash_key=key[:16], categorize=False).to_numpy()
    mixed: NDArray[np.uint64] = np.bitwise_xor(np.multiply(rest, np.uint64(1_000_003)), own).astype(np.uint64)
    return mixed


def _comparable(values: Any) -> Any:
    if values.dtype.kind in "biuf":
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    return values.astype(object).where(values.notna(), "").astype(str)


def _checksum(rows: NDArray[np.uint64], key: str) -> str:
    """Return one checksum for the whole table, whatever the order of its rows."""
    return hashlib.blake2b(np.sort(rows).tobytes(), digest_size=16, key=bytes.fromhex(key)).hexdigest()


def _chance(data: ClientData) -> float:
    """Return how many rows would be equal by chance.

    u (u - 1) / 2 pairs of different rows, each equal with probability (prod_j c_j)^.75, where c_j is the probability
    that two rows have the same value in column j. Columns that depend on each other say less than their product. Rows
    of many numbers (images) are never equal by chance.
    """
    rows, alike = _alike_by_chance(data)
    return rows * (rows - 1) / 2 * alike


def _possible_tables(data: ClientData) -> float:
    """Return about how many tables there could be of as many rows, as a power of 2.

    Rows are of about t = (prod_j c_j)^-.75 kinds, and n rows of t kinds make (n + t - 1)! / (n! (t - 1)!) tables.
    """
    count, (_, alike) = data.quantity + (0 if data.y_test is None else len(data.y_test)), _alike_by_chance(data)
    kinds = min(1 / alike if alike > 0 else np.inf, 1e12)
    return (math.lgamma(count + kinds) - math.lgamma(count + 1) - math.lgamma(kinds)) / math.log(2)


def _alike_by_chance(data: ClientData) -> tuple[int, float]:
    """Return how many different rows there are, and how probably two of them would be equal by chance."""
    import pandas as pd

    if not is_table(data.x) and int(np.prod(data.x.shape[1:])) > MANY:
        return 0, 0.0
    parts = [_with_label(data.x, data.y)]
    if data.x_test is not None and data.y_test is not None:
        parts.append(_with_label(data.x_test, data.y_test))
    frame = pd.concat(parts).drop_duplicates()
    rows, logs = len(frame), 0.0
    for name in frame.columns:
        shares = frame[name].value_counts(normalize=True, dropna=False).to_numpy()
        logs += float(np.log((shares**2).sum()))
    return rows, float(np.exp(INDEPENDENT * logs))


def _with_label(x: Any, y: NDArray[Any]) -> pd.DataFrame:
    import pandas as pd

    frame = x if is_table(x) else pd.DataFrame(x.reshape(len(x), -1)).rename(columns=str)
    return frame.assign(**{"\0label": y}).astype(object)
