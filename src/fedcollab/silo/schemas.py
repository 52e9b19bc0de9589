"""Which schema a silo takes over from a server: one that fits its own data, and no other.

    types        classes stay classes, and a numeric target numbers; a numeric column stays a number, a text column is
                 encoded by categories
    categories   that the silo has in fewer rows than its limit count as missing (`data.rare`)
    scales       plausible for a federation in which the silo has at least a thousandth of all samples:
                 std >= s / 32  and  |mean - m| <= 32 std,        m, s the silo's own mean and deviation

for if a share p of all samples is the silo's, then the federation's variance is at least p s^2 and at least
p (mean - m)^2. Without these bounds a scale turns any model into a threshold that picks single samples, and invented
categories turn sums of products into rows. How many schemas a silo takes over is counted in its plan's budget.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab import encoders
from fedcollab.data.samples import feature_shape, is_table
from fedcollab.data.schema import Column, Schema
from fedcollab.errors import InputError
from fedcollab.silo.rounding import summable
from fedcollab.wire.action import Refused
from fedcollab.wire.limits import Limits
from fedcollab.wire.silo import Silo

#: how far the federation's scale may be from the silo's own: 1 / sqrt(a thousandth)
FACTOR = 32.0
CLASSES = 10_000

Floats = NDArray[np.float64]


def digest_of(schema: str) -> str:
    """Return a short digest of a schema's text, by which a silo knows it again."""
    return hashlib.sha256(schema.encode()).hexdigest()[:16]


def limit_schema(schema: Schema, silo: Silo, limits: Limits) -> None:
    """Refuse a schema that does not fit the silo's own data.

    Parameters
    ----------
    schema : Schema
        What the server wants the silo to apply.
    silo : Silo
        The silo.
    limits : Limits
        Its limits.

    Raises
    ------
    Refused
        If types, columns, classes or scales are not those of the silo's data.
    """
    data = silo.rows
    training = silo.with_test(schema.test_share, schema.seed)  # what `describe` and `spread` were about
    if schema.task == "regression":
        _limit_target(schema, training.y, silo)
    else:
        _limit_classes(schema, data.y)
    if is_table(data.x) != (schema.columns is not None):
        raise Refused("`schema` is for a table, or for arrays; this silo has the other")
    if schema.columns is None:
        _limit_array(schema, training.x, silo)
    else:
        _limit_table(schema, schema.columns, training.x, silo)
    if schema.encoding is not None:
        _limit_encoding(schema, silo)


def _limit_classes(schema: Schema, y: NDArray[Any]) -> None:
    """Refuse classes that are not those of this silo."""
    known = set(schema.classes)
    if len(known) != len(schema.classes) or len(known) > CLASSES or not set(np.unique(y).tolist()) <= known:
        raise Refused("`schema` has other classes than this silo")


def _limit_target(schema: Schema, y: NDArray[Any], silo: Silo) -> None:
    """Refuse a numeric target where this silo has classes, and a scale that does not fit."""
    if schema.classes or y.dtype.kind not in "if":
        raise Refused("`schema` is for a numeric target; this silo has classes")
    own = summable(y.astype(np.float64), silo)  # as it was summed
    mean, scale = (float(part) for part in schema.target)
    _limit_scale("the target", mean, scale, own.mean(), own.std())


def _limit_table(schema: Schema, columns: tuple[Column, ...], table: Any, silo: Silo) -> None:
    """Refuse columns, categories and scales that do not fit this silo's table."""
    names = [str(name) for name in table.columns]
    if sorted(column.name for column in columns) != sorted(names):
        raise Refused("`schema` has other columns than this silo")
    for column in columns:
        values = table[column.name]
        present = values.dropna()
        numeric = values.dtype.kind in "biuf"
        if len(present) and numeric != (column.categories is None):
            kind = "numbers" if numeric else "text"
            raise Refused(f"`schema`: column `{column.name}` is {kind} at this silo")
        if column.categories is None and len(present):
            own = summable(present.to_numpy(dtype=np.float64), silo)  # as it was summed
            _limit_scale(f"column `{column.name}`", column.mean, column.std, own.mean(), own.std())


def _limit_array(schema: Schema, x: Any, silo: Silo) -> None:
    """Refuse a shape and scales that do not fit this silo's arrays."""
    shape = tuple(feature_shape(x))
    if schema.shape != shape or schema.missing_indicators:
        raise Refused(f"`schema` has shape {schema.shape}; this silo's samples have {shape}")
    if (schema.mean, schema.std) == ((0.0,), (1.0,)):
        return
    values = np.asarray(x, dtype=np.float64)
    if len(schema.mean) == 1:
        values = values.reshape(-1, 1)
    elif len(shape) == 3 and len(schema.mean) == shape[0]:
        values = np.moveaxis(values, 1, -1).reshape(-1, shape[0])
    else:
        values = summable(values.reshape(len(values), -1), silo)
    _limit_scale("a feature", schema.mean, schema.std, values.mean(axis=0), values.std(axis=0))


def _limit_encoding(schema: Schema, silo: Silo) -> None:
    """Refuse an encoder that this silo lacks, and scales that do not fit what it makes of the silo's samples."""
    encoding = schema.encoding
    assert encoding is not None
    try:
        encoder = encoders.find(encoding.encoder)
    except InputError:
        raise Refused(f"this silo has no encoder {encoding.encoder[:40]!r}") from None
    encoded = encoders.encoded(encoder, schema.apply(silo.rows, silo.lot).x, silo.device)
    features = summable(encoded.astype(np.float64), silo)  # as it was summed
    _limit_scale("an encoded feature", encoding.mean, encoding.std, features.mean(axis=0), features.std(axis=0))


def _limit_scale(what: str, mean: Any, std: Any, own_mean: Any, own_std: Any) -> None:
    """Refuse a scale that no federation of which this silo is a thousandth part could have."""
    given_mean, given_std = (np.asarray(each, dtype=np.float64).reshape(-1) for each in (mean, std))
    if given_mean.shape != given_std.shape or given_mean.size not in (1, np.size(own_mean)):
        raise Refused(f"`schema`: the scale of {what} has another length than this silo's samples")
    small = 1e-9 * (1 + np.abs(own_mean))
    good = np.isfinite(given_mean) & np.isfinite(given_std) & (given_std > 0)
    good &= given_std * FACTOR >= own_std - small
    good &= np.abs(given_mean - own_mean) <= FACTOR * given_std + small
    if not np.all(good):
        raise Refused(f"`schema`: the scale of {what} is not plausible beside this silo's own")
